"use client";
// The audit trail as a page shows it: found by the hub, newest first, with what happens since then on top.
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTimeRange } from "@/components/ui/time-range";
import { $api, client } from "@/lib/api/client";
import { useNews, useOnConnect } from "@/lib/live";
import type { Pages } from "@/lib/paging";
import { MANUAL_REFETCH } from "@/lib/refetch-scheduler";
import { useParam } from "@/lib/use-params";
import type { HubEvent } from "./event";

const PAGE = 200;
const GATHER_MS = 400;
const SHARE = 4; // of the time, at most one part in five goes into asking
const FRESH_MAX = 2000; // of what came while one looked the oldest are left out, and counted

export const ID = /^[A-Za-z0-9_-]{1,64}$/;
export const ACTION = /^[a-z_.]{1,64}$/;

const FOUND = {
  pageParamName: "before",
  initialPageParam: null as number | null,
  meta: MANUAL_REFETCH, // who has paused it is not disturbed
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
  const init = { params: { query: { ...filters, newest: true, limit: PAGE } } };
  const query = $api.useInfiniteQuery("get", "/events", init, FOUND);
  const queries = useQueryClient();
  const first = query.data?.pages[0];
  /** From the newest, without a gap: what was scrolled to is asked for as one scrolls there again. */
  const anew = async () => {
    queries.setQueryData(["get", "/events", init], (before: Pages | undefined) => before && firstOf(before));
    await query.refetch();
  };
  const fresh = useNewEvents({ key, filters, from: first?.cursor, paused, anew });

  const events = useMemo(() => {
    const all = [...fresh.events, ...(query.data?.pages.flatMap((page) => page.events) ?? [])];
    return [...new Map(all.map((event) => [event.seq, event])).values()].sort((one, other) => other.seq - one.seq);
  }, [fresh.events, query.data]);
  const names = useMemo(
    () => Object.assign({}, ...(query.data?.pages.map((page) => page.names ?? {}) ?? []), fresh.names) as Record<string, string>,
    [fresh.names, query.data],
  );
  const searchedTo = query.data?.pages.at(-1)?.searched_to_ms;
  return { query, events, names, waiting: fresh.waiting, left: fresh.left, anew, searchedTo };
}

function firstOf({ pages, pageParams }: Pages): Pages {
  return { pages: pages.slice(0, 1), pageParams: pageParams.slice(0, 1) };
}

/** Only of those that are shown: a page that is open all day would know everybody in the end. */
function namesOf(events: HubEvent[], names: Record<string, string>): Record<string, string> {
  const shown = new Set(events.flatMap((event) => Object.values(event)));
  return Object.fromEntries(Object.entries(names).filter(([id]) => shown.has(id)));
}

interface NewEvents {
  events: HubEvent[];
  names: Record<string, string>;
  left: number; // between these and the first page
}

const NONE: NewEvents = { events: [], names: {}, left: 0 };

interface NewEventsOptions {
  key: string;
  filters: ReturnType<typeof useFilters>;
  from: number | undefined;
  paused: boolean;
  anew: () => Promise<void>;
}

/** What came after the first page. The stream only says that there is something; the hub says whether the filters let it through. */
function useNewEvents({ key, filters, from, paused, anew }: NewEventsOptions) {
  const [fresh, setFresh] = useState<NewEvents>(NONE);
  const [waiting, setWaiting] = useState(0);
  const cursor = useRef<number | undefined>(undefined);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const asking = useRef({ busy: false, dirty: false, freeAt: 0 });
  const latest = useRef({ key, filters, anew, paused });
  latest.current = { key, filters, anew, paused };

  const look = useCallback(async () => {
    const after = cursor.current;
    const asked = latest.current;
    if (after === undefined || asked.paused) return;
    const { data } = await client.GET("/events", { params: { query: { ...asked.filters, after, limit: PAGE } } });
    if (!data || latest.current.key !== asked.key || cursor.current !== after || latest.current.paused) return;
    setWaiting(0);
    if (data.events.length === PAGE) return latest.current.anew(); // too much to catch up with page by page
    cursor.current = data.cursor;
    setFresh((before) => {
      const all = [...data.events.toReversed(), ...before.events];
      const events = all.slice(0, FRESH_MAX);
      const left = before.left + all.length - events.length;
      return { events, names: namesOf(events, { ...before.names, ...data.names }), left };
    });
  }, []);
  const soon = useCallback(() => {
    const now = asking.current;
    now.dirty = true;
    if (now.busy) return;
    timer.current ??= setTimeout(
      async () => {
        timer.current = undefined;
        now.busy = true;
        now.dirty = false;
        const begun = performance.now();
        await look().catch(() => undefined);
        now.busy = false;
        now.freeAt = performance.now() + SHARE * (performance.now() - begun);
        if (now.dirty) soon();
      },
      Math.max(GATHER_MS, now.freeAt - performance.now()),
    );
  }, [look]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: other filters begin anew
  useEffect(() => {
    setFresh(NONE);
    cursor.current = undefined;
  }, [key]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: other filters may begin at the same event
  useEffect(() => {
    if (from === undefined || (cursor.current !== undefined && from <= cursor.current)) return;
    cursor.current = from;
    setFresh(NONE); // the first page has all of it now
    soon(); // what came while there was nothing to go on from was not looked for
  }, [key, from]);
  useEffect(() => {
    if (!paused) soon();
  }, [paused, soon]);
  useEffect(() => () => clearTimeout(timer.current), []);
  useNews((news) => {
    if (paused) setWaiting((before) => before + news.events);
    else soon();
  });
  useOnConnect(() => {
    if (!paused) soon();
  });
  return { ...fresh, waiting };
}
