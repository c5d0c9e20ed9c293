"use client";
// The audit trail as a page shows it: found by the hub, newest first, with what happens since then on top.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTimeRange } from "@/components/ui/time-range";
import { $api, client } from "@/lib/api/client";
import { type HubEvent, useEvents } from "@/lib/live";
import { useParam } from "@/lib/use-params";

const PAGE = 200;
const GATHER_MS = 400;
const FRESH_MAX = 2000; // more that came while one looked: asked anew instead

export const ID = /^[A-Za-z0-9_-]{1,64}$/;
export const ACTION = /^[a-z_.]{1,64}$/;

const FOUND = {
  pageParamName: "before",
  initialPageParam: null as number | null,
  getNextPageParam: (page: { next?: number | null }) => page.next ?? undefined,
};

/** The filters of the address, as far as the API knows them. */
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
  const named = Object.fromEntries(Object.entries(ids).filter(([, id]) => ID.test(id)));
  return { ...(q && { q }), ...(ACTION.test(action) && { action }), ...named, ...time };
}

export function useTrail(paused: boolean) {
  const filters = useFilters();
  const key = JSON.stringify(filters);
  const query = $api.useInfiniteQuery("get", "/events", { params: { query: { ...filters, newest: true, limit: PAGE } } }, FOUND);
  const first = query.data?.pages[0];
  const fresh = useFresh({ key, filters, from: first?.cursor, paused, again: () => void query.refetch() });

  const events = useMemo(() => {
    const seen = new Set<number>();
    const all = [...fresh.events, ...(query.data?.pages.flatMap((page) => page.events) ?? [])];
    return all.filter((event) => !seen.has(event.seq) && seen.add(event.seq));
  }, [fresh.events, query.data]);
  const names = useMemo(
    () => Object.assign({}, ...(query.data?.pages.map((page) => page.names ?? {}) ?? []), fresh.names) as Record<string, string>,
    [fresh.names, query.data],
  );
  return { query, events, names, waiting: fresh.waiting, searchedTo: query.data?.pages.at(-1)?.searched_to_ms };
}

interface Fresh {
  events: HubEvent[];
  names: Record<string, string>;
}

interface Since {
  key: string;
  filters: ReturnType<typeof useFilters>;
  from: number | undefined;
  paused: boolean;
  again: () => void;
}

/** What came after the first page. The stream only says that there is something; the hub says whether the filters let it through. */
function useFresh({ key, filters, from, paused, again }: Since) {
  const [fresh, setFresh] = useState<Fresh>({ events: [], names: {} });
  const [waiting, setWaiting] = useState(0);
  const cursor = useRef<number | undefined>(undefined);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const latest = useRef({ key, filters, again });
  latest.current = { key, filters, again };

  // biome-ignore lint/correctness/useExhaustiveDependencies: other filters begin anew
  useEffect(() => {
    setFresh({ events: [], names: {} });
    cursor.current = undefined;
  }, [key]);
  useEffect(() => {
    if (from !== undefined && (cursor.current === undefined || from > cursor.current)) cursor.current = from;
  }, [from]);

  const ask = useCallback(async () => {
    timer.current = undefined;
    const after = cursor.current;
    const asked = latest.current;
    if (after === undefined) return;
    const { data } = await client.GET("/events", { params: { query: { ...asked.filters, after, limit: PAGE } } });
    if (!data || latest.current.key !== asked.key || cursor.current !== after) return;
    cursor.current = data.cursor;
    setWaiting(0);
    setFresh((before) => ({
      events: [...data.events.toReversed(), ...before.events].slice(0, FRESH_MAX),
      names: { ...before.names, ...data.names },
    }));
    if (data.events.length === PAGE) latest.current.again(); // too much to catch up with page by page
  }, []);

  const paused_ = useRef(paused);
  useEffect(() => {
    paused_.current = paused;
    if (!paused) timer.current ??= setTimeout(() => void ask(), 0);
  }, [paused, ask]);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEvents(() => {
    if (paused_.current) setWaiting((before) => before + 1);
    else timer.current ??= setTimeout(() => void ask(), GATHER_MS);
  });
  return { ...fresh, waiting };
}
