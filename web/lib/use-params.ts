"use client";
// Filters and choices live in the address, so that a view can be sent to somebody and "back" works.
import { useSearchParams } from "next/navigation";
import { useCallback, useEffect, useState } from "react";

export function useParam(name: string): [string, (value: string) => void] {
  const params = useSearchParams();
  return [params.get(name) ?? "", useCallback((value) => setParams({ [name]: value }), [name])];
}

const choosers = new Set<() => void>();

/** As useParam, for a control that shows its own value: React would put the old one back until Next has heard of the new address. */
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

/** Sets several at once; an empty one is taken out. Filters replace the entry in the history, `push` adds one.
 *
 * By the browser's own history, which Next follows: the page is the same, so nothing is fetched; and of two quick changes
 * the second one goes on from the first, which is in the address already when React has not heard of it yet.
 */
export function setParams(changes: Record<string, string | string[]>, how: "replace" | "push" = "replace"): void {
  const next = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of [value].flat()) if (one) next.append(name, one);
  }
  const search = next.size > 0 ? `?${next}` : "";
  window.history[`${how}State`](null, "", `${window.location.pathname}${search}`);
  for (const look of choosers) look();
}
