// When what a page shows is asked again: soon after something happened to it, and never so often that the hub feels it.
import type { Query, QueryClient } from "@tanstack/react-query";
import { type Pages, withFirst } from "./paging";

const GATHER_MS = 300; // events of a busy moment become one round of questions
const LEAST_MS = 700; // between an answer and the next question
const SHARE = 4; // of the time, at most one part in five goes into one question
const MOST_MS = 30_000;

/** For questions that the hub answers by adding up a whole history. */
export const SLOW = { meta: { pauseMs: 12_000 } };
/** For what is asked again by those who show it. */
export const OWN_PACE = { ownPace: true };

type Concerns = (key: readonly unknown[], words: Set<string>) => boolean;

/** `concerns` says whether a query shows what the words of some events name. */
export function pacer(queries: QueryClient, concerns: Concerns) {
  const cache = queries.getQueryCache();
  let words = new Set<string>();
  const due = new Set<string>(); // hashes of queries that something happened to
  const asking = new Set<string>();
  const freeAt = new Map<string, number>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let breaks = 0;
  let ended = false;

  const ask = async (query: Query) => {
    const { queryHash } = query;
    const [begun, before] = [performance.now(), breaks];
    due.delete(queryHash);
    asking.add(queryHash);
    // What failed was said by the query itself.
    await again(queries, query).catch(() => undefined);
    asking.delete(queryHash);
    if (breaks !== before) return; // most of that time the hub was away
    const ended = performance.now();
    const least = typeof query.meta?.pauseMs === "number" ? query.meta.pauseMs : LEAST_MS;
    freeAt.set(queryHash, ended + Math.max(least, Math.min(SHARE * (ended - begun), MOST_MS)));
  };
  const touch = (concerned: (query: Query) => boolean) => {
    for (const query of cache.getAll()) {
      if (query.meta?.ownPace || !concerned(query)) continue;
      if (query.isActive()) due.add(query.queryHash);
      else query.invalidate(); // asked when somebody looks at it
    }
  };
  const round = () => {
    timer = undefined;
    const heard = words;
    words = new Set();
    if (heard.size > 0) touch((query) => concerns(query.queryKey, heard));
    const now = performance.now();
    for (const queryHash of [...due]) {
      const query = cache.get(queryHash);
      if (!query?.isActive()) due.delete(queryHash);
      // An answer that is on its way may be of before the event.
      else if (!asking.has(queryHash) && query.state.fetchStatus === "idle" && (freeAt.get(queryHash) ?? 0) <= now) {
        void ask(query);
      }
    }
    if (due.size > 0) soon();
  };
  const soon = () => {
    if (!ended) timer ??= setTimeout(round, GATHER_MS);
  };
  const everything = () => {
    touch((query) => query.state.status !== "error"); // a refusal stands, and does not flicker
    soon();
  };
  return {
    add(named: string[]) {
      for (const word of named) words.add(word);
      soon();
    },
    /** More happened than was named. */
    everything,
    /** The hub was away, or nobody listened: anything may have happened. */
    afterBreak() {
      breaks += 1;
      freeAt.clear();
      everything();
    },
    stop() {
      ended = true;
      clearTimeout(timer);
    },
  };
}

/** Of a list that was scrolled the first page alone: what happens is at its top, and the rest may be a hundred pages. */
async function again(queries: QueryClient, query: Query): Promise<void> {
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
