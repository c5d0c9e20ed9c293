// When what a page shows is fetched again: soon after something happened to it, and never so often that the hub feels it.
import type { Query, QueryClient } from "@tanstack/react-query";
import { type Pages, withFirst } from "./paging";

const GATHER_MS = 300; // events of a busy moment become one round of requests
const PAUSE_MIN_MS = 700; // between an answer and the next request
const PAUSE_SHARE = 4; // of the time, at most one part in five goes into one request
const PAUSE_MAX_MS = 30_000;

/** For queries that the hub answers by adding up a whole history. */
export const SLOW_QUERY = { meta: { pauseMs: 12_000 } };
/** For what is fetched again by those who show it. */
export const MANUAL_REFETCH = { manualRefetch: true };

type IsAffected = (key: readonly unknown[], names: Set<string>) => boolean;

/** `isAffected` says whether a query shows what the names of some events stand for. */
export function refetchScheduler(queries: QueryClient, isAffected: IsAffected) {
  const cache = queries.getQueryCache();
  let names = new Set<string>();
  const due = new Set<string>(); // hashes of queries that something happened to
  const fetching = new Set<string>();
  const freeAt = new Map<string, number>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let breaks = 0;
  let stopped = false;

  const fetchAgain = async (query: Query) => {
    const { queryHash } = query;
    const [startedAt, breaksBefore] = [performance.now(), breaks];
    due.delete(queryHash);
    fetching.add(queryHash);
    // The query itself shows what failed.
    await refetch(queries, query).catch(() => undefined);
    fetching.delete(queryHash);
    if (breaks !== breaksBefore) return; // most of that time the hub was away
    const endedAt = performance.now();
    const least = typeof query.meta?.pauseMs === "number" ? query.meta.pauseMs : PAUSE_MIN_MS;
    freeAt.set(queryHash, endedAt + Math.max(least, Math.min(PAUSE_SHARE * (endedAt - startedAt), PAUSE_MAX_MS)));
  };
  const markDue = (matches: (query: Query) => boolean) => {
    for (const query of cache.getAll()) {
      if (query.meta?.manualRefetch || !matches(query)) continue;
      if (query.isActive()) due.add(query.queryHash);
      else query.invalidate(); // fetched when somebody looks at it
    }
  };
  const runRound = () => {
    timer = undefined;
    const gathered = names;
    names = new Set();
    if (gathered.size > 0) markDue((query) => isAffected(query.queryKey, gathered));
    const now = performance.now();
    for (const queryHash of [...due]) {
      const query = cache.get(queryHash);
      if (!query?.isActive()) due.delete(queryHash);
      // An answer that is on its way may be of before the event.
      else if (!fetching.has(queryHash) && query.state.fetchStatus === "idle" && (freeAt.get(queryHash) ?? 0) <= now) {
        void fetchAgain(query);
      }
    }
    if (due.size > 0) scheduleRound();
  };
  const scheduleRound = () => {
    if (!stopped) timer ??= setTimeout(runRound, GATHER_MS);
  };
  const refetchAll = () => {
    markDue((query) => query.state.status !== "error"); // a refusal stands, and does not flicker
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
    /** The hub was away, or nobody listened: anything may have happened. */
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

/** Of a list that was scrolled the first page alone: what happens is at its top, and the rest may be a hundred pages. */
async function refetch(queries: QueryClient, query: Query): Promise<void> {
  const data = query.state.data as Partial<Pages> | undefined;
  const { queryFn } = query.options;
  if (!Array.isArray(data?.pages) || data.pages.length < 2 || typeof queryFn !== "function") {
    await queries.invalidateQueries({ queryKey: query.queryKey, exact: true }, { cancelRefetch: false });
    return;
  }
  const context = { client: queries, queryKey: query.queryKey, meta: query.meta, signal: new AbortController().signal };
  const page = await queryFn({ ...context, pageParam: data.pageParams?.[0], direction: "forward" });
  queries.setQueryData(query.queryKey, (before: Pages | undefined) => before && withFirst(before, page));
}
