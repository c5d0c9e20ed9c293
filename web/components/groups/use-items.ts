"use client";
// A group's items: a list page by page, all of a list, and the state of every item.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { $api, answerOf, client, type Schemas } from "@/lib/api/client";
import { PAGED } from "@/lib/paging";
import type { ItemState } from "./cells";

export type GroupItem = Schemas["GroupItem"];
export type Which = "all" | "results" | "failures" | "waiting";

const PAGE = 200;
const STATES_PAGE = 5000;
const STATES_MAX = 250_000;
/** A busy group has hundreds of events a second. */
const BUSY = { meta: { pauseMs: 1500 } };

export function useItems(groupId: string, which: Which) {
  const params = { path: { group_id: groupId }, query: { which, limit: PAGE } };
  return $api.useInfiniteQuery("get", "/groups/{group_id}/items", { params }, { ...PAGED, ...BUSY });
}

export function useStates(groupId: string) {
  const path = { group_id: groupId };
  return useQuery({
    // As $api would name it, so that news refetch it.
    queryKey: ["get", "/groups/{group_id}/states", { params: { path } }],
    queryFn: async ({ signal }) => {
      const states: ItemState[] = [];
      let after: string | null | undefined;
      do {
        const query = { limit: STATES_PAGE, ...(after && { after }) };
        const page: Schemas["StatePage"] = await answerOf(
          client.GET("/groups/{group_id}/states", { params: { path, query }, signal }),
        );
        states.push(...page.items);
        after = page.next;
      } while (after && states.length < STATES_MAX);
      return states;
    },
    placeholderData: keepPreviousData,
    ...BUSY,
  });
}

interface AllOptions {
  onProgress: (count: number) => void;
  signal: AbortSignal;
  most: number;
}

export async function allItems(groupId: string, which: Which, { onProgress, signal, most }: AllOptions): Promise<GroupItem[]> {
  const items: GroupItem[] = [];
  let after: string | null | undefined;
  do {
    const params = { path: { group_id: groupId }, query: { which, limit: 500, ...(after && { after }) } };
    const page: Schemas["ItemPage"] = await answerOf(client.GET("/groups/{group_id}/items", { params, signal }));
    items.push(...page.items);
    onProgress(items.length);
    after = page.next;
  } while (after && items.length < most);
  return items;
}
