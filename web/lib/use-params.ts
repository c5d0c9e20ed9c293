"use client";
// Filters and choices are in the address, so that one can send a view to somebody, and "back" works.
import { useSearchParams } from "next/navigation";
import { useCallback, useEffect, useState } from "react";

export function useParam(name: string): [string, (value: string) => void] {
  const params = useSearchParams();
  return [params.get(name) ?? "", useCallback((value) => setParams({ [name]: value }), [name])];
}

const choosers = new Set<() => void>();

/** Like useParam, for a select element: React would restore the old value until Next has noticed the new address. */
export function useParamState(name: string): [string, (value: string) => void] {
  const [asked, ask] = useParam(name);
  const [chosen, setChosen] = useState(asked);
  // biome-ignore lint/correctness/useExhaustiveDependencies: links and "back" change it, too
  useEffect(() => {
    const look = () => setChosen(new URLSearchParams(window.location.search).get(name) ?? "");
    look();
    choosers.add(look);
    return () => void choosers.delete(look);
  }, [name, asked]);
  return [chosen, ask];
}

/**
 * Sets several parameters; empty ones are removed. Uses the browser's own history, which Next follows: nothing is fetched,
 * and the second of two quick changes sees the first one in the address, even if React has not drawn it yet.
 */
export function setParams(changes: Record<string, string | string[]>): void {
  const next = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of [value].flat()) if (one) next.append(name, one);
  }
  const search = next.size > 0 ? `?${next}` : "";
  window.history.replaceState(null, "", `${window.location.pathname}${search}`);
  for (const look of choosers) look();
}
