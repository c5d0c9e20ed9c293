"use client";
// One of a group's lists, page by page, kept true at the group's own pace.
import { useInfiniteQuery } from "@tanstack/react-query";
import { client, type Schemas } from "@/lib/api/client";
import { PAGED } from "@/lib/paging";
import { useRefetchOnNews } from "./use-refetch-on-news";

export type GroupItem = Schemas["GroupItem"];
export type Which = "all" | "results" | "failures" | "waiting";

const PAGE = 200;

async function itemPage(groupId: string, which: Which, at: { after: string | null; limit?: number; signal?: AbortSignal }) {
  const query = { which, limit: at.limit ?? PAGE, ...(at.after && { after: at.after }) };
  const { data, error } = await client.GET("/groups/{group_id}/items", {
    params: { path: { group_id: groupId }, query },
    ...(at.signal && { signal: at.signal }),
  });
  if (!data) throw error;
  return data;
}

export function useItems(groupId: string, which: Which) {
  const queryKey = ["group-items", groupId, which];
  useRefetchOnNews(groupId, queryKey);
  return useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam, signal }) => itemPage(groupId, which, { after: pageParam, signal }),
    initialPageParam: PAGED.initialPageParam,
    getNextPageParam: PAGED.getNextPageParam,
  });
}

/** Every item, one after the other; `seen` hears how many there are so far. */
export async function allItems(
  groupId: string,
  which: Which,
  { seen, signal, most }: { seen: (count: number) => void; signal: AbortSignal; most: number },
): Promise<GroupItem[]> {
  const found: GroupItem[] = [];
  let after: string | null = null;
  do {
    const page: Schemas["ItemPage"] = await itemPage(groupId, which, { after, limit: 500, signal });
    found.push(...page.items);
    seen(found.length);
    after = page.next ?? null;
  } while (after && found.length < most);
  return found;
}
