"use client";
// The state of every item of a group, all pages together.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { client } from "@/lib/api/client";
import type { ItemState } from "./cells";
import { useRefetchOnNews } from "./use-refetch-on-news";

const PAGE = 5000;
const ITEMS_MAX = 250_000;

export function useStates(groupId: string) {
  // A key of its own: the pace is this one's, not that of single events.
  const queryKey = ["group-states", groupId];
  useRefetchOnNews(groupId, queryKey);
  return useQuery({
    queryKey,
    queryFn: ({ signal }) => load(groupId, signal),
    placeholderData: keepPreviousData,
  });
}

async function load(groupId: string, signal: AbortSignal): Promise<ItemState[]> {
  const found: ItemState[] = [];
  let after: string | null | undefined;
  do {
    const query = { limit: PAGE, ...(after && { after }) };
    const { data, error } = await client.GET("/groups/{group_id}/states", {
      params: { path: { group_id: groupId }, query },
      signal,
    });
    if (!data) throw error;
    found.push(...data.items);
    after = data.next;
  } while (after && found.length < ITEMS_MAX);
  return found;
}
