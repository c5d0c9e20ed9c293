// Fetches what a page shows again: soon after something happened to it, but never so often that the hub feels it.
import type { Query, QueryClient } from "@tanstack/react-query";
import { type Pages, rowIds, withPage } from "./paging";

const GATHER_MS = 300; // events of a busy moment become one round of requests
const PAUSE_MIN_MS = 700; // between an answer and the next request
const PAUSE_SHARE = 4; // pause four times as long as the answer took
const PAUSE_MAX_MS = 30_000;
const PAGES_AT_ONCE = 4; // of a list, besides the first one

interface RefetchMeta extends Record<string, unknown> {
  pauseMs?: number; // at least so long between two requests
  refetch?: (queries: QueryClient, query: Query) => Promise<unknown>; // instead of the usual way
  isPaused?: boolean;
}

declare module "@tanstack/react-query" {
  interface Register {
    queryMeta: RefetchMeta;
  }
}

/** For queries that the hub answers by adding up a whole history. */
export const SLOW_QUERY = { meta: { pauseMs: 12_000 } };

type IsAffected = (key: readonly unknown[], names: Set<string>) => boolean;

/** `isAffected` tells whether a query shows what the names of some events stand for. */
export function refetchScheduler(queries: QueryClient, isAffected: IsAffected) {
  const cache = queries.getQueryCache();
  const due = new Map<string, Set<string>>(); // by the query's hash: the rows that changed
  const fetching = new Set<string>();
  const freeAt = new Map<string, number>();
  let names = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let breaks = 0;
  let stopped = false;

  const fetchAgain = async (query: Query, rows: Set<string>) => {
    const { queryHash } = query;
    const [startedAt, breaksBefore] = [performance.now(), breaks];
    due.delete(queryHash);
    fetching.add(queryHash);
    // The query itself shows an error.
    await (query.meta?.refetch ?? refetchRows)(queries, query, rows).catch(() => undefined);
    fetching.delete(queryHash);
    if (rows.size > 0) addDue(query, rows);
    if (breaks !== breaksBefore) return; // the hub was away for most of that time
    const endedAt = performance.now();
    const pause = Math.min(PAUSE_SHARE * (endedAt - startedAt), PAUSE_MAX_MS);
    freeAt.set(queryHash, endedAt + Math.max(query.meta?.pauseMs ?? PAUSE_MIN_MS, pause));
  };
  const addDue = ({ queryHash }: Query, rows: Iterable<string>) => {
    due.set(queryHash, new Set([...(due.get(queryHash) ?? []), ...rows]));
  };
  const markDue = (matches: (query: Query) => boolean, changed?: Set<string>) => {
    for (const query of cache.getAll()) {
      if (query.meta?.isPaused || !matches(query)) continue;
      if (query.isActive()) addDue(query, changed && !isOfOneThing(query) ? changed : allRows(query));
      else query.invalidate(); // fetched when it is shown
    }
  };
  const runRound = () => {
    timer = undefined;
    const gathered = names;
    names = new Set();
    if (gathered.size > 0) markDue((query) => isAffected(query.queryKey, gathered), gathered);
    const now = performance.now();
    for (const [queryHash, rows] of [...due]) {
      const query = cache.get(queryHash);
      if (!query?.isActive()) due.delete(queryHash);
      // An answer that is on its way may be older than the event.
      else if (!fetching.has(queryHash) && query.state.fetchStatus === "idle" && (freeAt.get(queryHash) ?? 0) <= now) {
        void fetchAgain(query, rows);
      }
    }
    if (due.size > 0) scheduleRound();
  };
  const scheduleRound = () => {
    if (!stopped) timer ??= setTimeout(runRound, GATHER_MS);
  };
  const refetchAll = () => {
    markDue((query) => query.state.status !== "error"); // a refusal stays, without flickering
    scheduleRound();
  };
  return {
    /** Something happened to these: ids, and the paths that list such things. */
    refetchNamed(changed: string[]) {
      for (const name of changed) names.add(name);
      scheduleRound();
    },
    /** More happened than was named. */
    refetchAll,
    /** Anything may have happened while the hub was away or this page did not listen. */
    refetchAfterBreak() {
      breaks += 1;
      freeAt.clear();
      refetchAll();
    },
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

function scrolledPages(query: Query): Pages | undefined {
  const data = query.state.data as Partial<Pages> | undefined;
  return Array.isArray(data?.pages) && data.pages.length > 1 ? (data as Pages) : undefined;
}

function allRows(query: Query): string[] {
  const list = scrolledPages(query);
  return list ? rowIds(list).flat() : [];
}

/** A list of one thing's parts: events name the thing, not always the part. */
function isOfOneThing({ queryKey }: Query): boolean {
  return Boolean((queryKey[2] as { params?: { path?: object } } | undefined)?.params?.path);
}

/** Fetches a query again; of a list that was scrolled, the first page and a few that have these rows. Others stay in `rows`. */
async function refetchRows(queries: QueryClient, query: Query, rows: Set<string>): Promise<void> {
  const list = scrolledPages(query);
  const { queryFn } = query.options;
  if (!list || typeof queryFn !== "function") {
    rows.clear();
    await queries.invalidateQueries({ queryKey: query.queryKey, exact: true }, { cancelRefetch: false });
    return;
  }
  const ids = rowIds(list);
  const affected = ids.flatMap((page, at) => (at > 0 && page.some((id) => rows.has(id)) ? [at] : []));
  const later = new Set(affected.slice(PAGES_AT_ONCE).flatMap((at) => ids[at] ?? []));
  for (const row of rows) if (!later.has(row)) rows.delete(row);
  const context = { client: queries, queryKey: query.queryKey, meta: query.meta, signal: new AbortController().signal };
  const fetchPage = async (at: number) => {
    const pageParam = list.pageParams[at];
    const page = await queryFn({ ...context, pageParam, direction: "forward" });
    queries.setQueryData(query.queryKey, (now: Pages | undefined) => {
      const isThere = now && now.pages.length > at && now.pageParams[at] === pageParam;
      return isThere ? withPage(now, at, page) : now;
    });
  };
  await Promise.all([0, ...affected.slice(0, PAGES_AT_ONCE)].map(fetchPage));
}
