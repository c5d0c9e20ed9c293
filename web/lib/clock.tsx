"use client";
// The hub's clock: ages are counted against it, so that a wrong clock here does not make jobs of the future.
import { createContext, useContext, useEffect, useState } from "react";

const Offset = createContext(0);
export const ClockProvider = Offset.Provider;

/** The hub's time, renewed every `everyMs`. Zero until the page is alive: what is built in advance knows no time. */
export function useNow(everyMs = 1000): number {
  const offset = useContext(Offset);
  const [now, setNow] = useState(0);
  useEffect(() => {
    const tick = () => setNow(Date.now() + offset);
    tick();
    const timer = setInterval(tick, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, offset]);
  return now;
}
