"use client";
// The hub's time, from which ages are counted: this machine's clock may be wrong.
import { createContext, useContext, useSyncExternalStore } from "react";

const Offset = createContext(0);
export const ClockProvider = Offset.Provider;

const TICK_MS = 1000;
const listeners = new Set<() => void>();
let tickedAtMs = 0;

function tick(): void {
  tickedAtMs = Date.now();
  for (const onTick of listeners) onTick();
}

function subscribe(onTick: () => void): () => void {
  if (tickedAtMs === 0) {
    tick();
    setInterval(tick, TICK_MS);
  }
  listeners.add(onTick);
  return () => void listeners.delete(onTick);
}

/**
 * What `read` makes of the hub's time. Everything on a page changes with the same tick, and is drawn again only if it
 * differs. Null in the prerendered page, which has no time.
 */
export function useClock<T extends string | number>(read: (nowMs: number) => T): T | null {
  const offset = useContext(Offset);
  return useSyncExternalStore(
    subscribe,
    () => (tickedAtMs === 0 ? null : read(tickedAtMs + offset)),
    () => null,
  );
}

/** The hub's time in whole steps of `everyMs`; zero in the prerendered page. */
export function useNow(everyMs = TICK_MS): number {
  return useClock((nowMs) => nowMs - (nowMs % everyMs)) ?? 0;
}
