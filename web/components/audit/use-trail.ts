"use client";
// The audit trail, newest first. New events appear on top, unless somebody has paused it.
import type { Query, QueryClient } from "@tanstack/react-query";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { useTimeRange } from "@/components/ui/time-range";
import { $api, answerOf, client, type Schemas } from "@/lib/api/client";
import { useNews } from "@/lib/live";
import { useParam } from "@/lib/use-params";

export type HubEvent = Schemas["EventView"];
type EventPage = Schemas["EventPage"];
interface Trail {
  pages: EventPage[];
  pageParams: unknown[];
}

const PAGE = 200;
const FIRST_PAGE_MAX = 2000;

export const ID = /^[A-Za-z0-9_-]{1,64}$/;
export const ACTION = /^[a-z_.]{1,64}$/;

/** The filters in the address, as far as the API knows them. */
export function useFilters() {
  const [q] = useParam("q");
  const [action] = useParam("action");
  const ids = {
    actor: useParam("actor")[0],
    account_id: useParam("account")[0],
    job_id: useParam("job")[0],
    node_id: useParam("node")[0],
    group_id: useParam("group")[0],
  };
  const time = useTimeRange();
  const valid = Object.fromEntries(Object.entries(ids).filter(([, id]) => ID.test(id)));
  return { ...(q && { q }), ...(ACTION.test(action) && { action }), ...valid, ...time };
}

export function useTrail(paused: boolean) {
  const filters = useFilters();
  const queries = useQueryClient();
  const query = $api.useInfiniteQuery(
    "get",
    "/events",
    { params: { query: { ...filters, newest: true, limit: PAGE } } },
    {
      pageParamName: "before",
      initialPageParam: null as number | null,
      getNextPageParam: (page: EventPage) => page.next ?? undefined,
      meta: { refetch: catchUp, isPaused: paused },
    },
  );
  const [waiting, setWaiting] = useState(0);
  useNews((news) => setWaiting((before) => (paused ? before + news.events : 0)));
  useEffect(() => {
    if (paused) return;
    setWaiting(0);
    const active = queries.getQueryCache().findAll({ queryKey: ["get", "/events"], type: "active" });
    for (const query of active) void catchUp(queries, query).catch(() => undefined);
  }, [paused, queries]);
  const pages = query.data?.pages;
  const names = useMemo(() => Object.assign({}, ...(pages?.map((page) => page.names) ?? [])) as Record<string, string>, [pages]);
  return { query, names, waiting, searchedTo: pages?.at(-1)?.searched_to_ms };
}

/** Asks for what came after the first page. After too much of it, the trail begins again with the newest. */
async function catchUp(queries: QueryClient, query: Query): Promise<void> {
  const first = (query.state.data as Trail | undefined)?.pages[0];
  if (!first) return;
  const [, , init] = query.queryKey as [string, string, { params: { query: object } }];
  const params = { query: { ...init.params.query, newest: false, after: first.cursor } };
  const newer = await answerOf(client.GET("/events", { params }));
  const { pages, pageParams } = query.state.data as Trail;
  if (query.meta?.isPaused || pages[0] !== first) return;
  if (newer.events.length === PAGE || first.events.length + newer.events.length > FIRST_PAGE_MAX) {
    queries.setQueryData(query.queryKey, { pages: [first], pageParams: pageParams.slice(0, 1) });
    await queries.invalidateQueries({ queryKey: query.queryKey, exact: true });
    return;
  }
  const events = [...newer.events.toReversed(), ...first.events];
  const grown = { ...first, events, cursor: newer.cursor, names: { ...first.names, ...newer.names } };
  queries.setQueryData(query.queryKey, { pages: [grown, ...pages.slice(1)], pageParams });
}
