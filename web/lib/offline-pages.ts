"use client";
// Lets pages open while the hub is away. At each navigation Next.js fetches a page's payload. If that fails, it falls back to
// a full load, which ends at the browser's error page. So payloads are cached, and fetched until they arrive.
import { useEffect, useSyncExternalStore } from "react";
import { BASE_PATH } from "./api/client";
import { pause } from "./pause";

const PAYLOAD = "/index.txt";
const CHUNKS = /\/_next\/static\/[\w./~-]+?\.(?:js|css)/g;
const PATIENCE_MS = 2000; // after so long a cached page is shown: the hub may hang
const RETRY_MS = 1000;
const LATER_MS = 4000; // the page's own requests come first
const BETWEEN_MS = 300;
const NOTICEABLE_MS = 300; // a page that takes longer is shown to be loading
const IN_ADVANCE = { priority: "low" } as const; // prefetches

const cache = new Map<string, Response>();

/** From now on, navigations wait for the hub instead of failing. Call it once, before anything navigates. */
export function cachePages(): void {
  const ask = window.fetch.bind(window);
  window.fetch = (input, init) => {
    const { pathname, origin } = new URL(input instanceof Request ? input.url : input, window.location.href);
    if (origin !== window.location.origin || !pathname.endsWith(PAYLOAD)) return ask(input, init);
    const page = fetchUntilAnswered(() => ask(input, init), pathname, init?.signal ?? null);
    return init?.priority === IN_ADVANCE.priority ? page : trackWait(page);
  };
}

let waits = 0;
const listeners = new Set<() => void>();

function addWaits(change: number): void {
  waits += change;
  for (const onChange of listeners) onChange();
}

async function trackWait(page: Promise<Response>): Promise<Response> {
  let counted = false;
  const timer = setTimeout(() => {
    counted = true;
    addWaits(1);
  }, NOTICEABLE_MS);
  try {
    return await page;
  } finally {
    clearTimeout(timer);
    if (counted) addWaits(-1);
  }
}

/** Somebody waits for a page. */
export function useIsPageLoading(): boolean {
  return useSyncExternalStore(
    (onChange) => {
      listeners.add(onChange);
      return () => void listeners.delete(onChange);
    },
    () => waits > 0,
    () => false,
  );
}

async function fetchUntilAnswered(ask: () => Promise<Response>, key: string, signal: AbortSignal | null): Promise<Response> {
  for (;;) {
    const asked = ask().catch(() => null);
    const answer = await (cache.has(key) ? Promise.race([asked, pause(PATIENCE_MS)]) : asked);
    // A proxy's error is no page either.
    if (answer && answer.status < 500) {
      if (answer.ok) cache.set(key, answer.clone());
      return answer;
    }
    const copy = cache.get(key);
    if (copy) return copy.clone();
    signal?.throwIfAborted();
    await pause(RETRY_MS);
  }
}

/** Loads these pages one after the other, and their scripts into the browser's cache. */
export function usePrefetchedPages(paths: readonly string[], when: boolean): void {
  useEffect(() => {
    if (!when) return;
    let ended = false;
    const load = async () => {
      await pause(LATER_MS);
      for (const path of paths) {
        await pause(BETWEEN_MS);
        if (ended) return;
        await prefetch(`${BASE_PATH}${path.replace(/\/$/, "")}${PAYLOAD}`).catch(() => undefined);
      }
    };
    void load();
    return () => {
      ended = true;
    };
  }, [paths, when]);
}

async function prefetch(payload: string): Promise<void> {
  if (cache.has(payload)) return;
  const answer = await fetch(payload, IN_ADVANCE);
  for (const chunk of new Set((await answer.text()).match(CHUNKS) ?? []))
    await (await fetch(`${BASE_PATH}${chunk}`)).arrayBuffer();
}
