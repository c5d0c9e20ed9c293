"use client";
// Filters and choices live in the address, so that a view can be sent to somebody and "back" works.
import { useSearchParams } from "next/navigation";
import { useCallback } from "react";

export function useParam(name: string): [string, (value: string) => void] {
  const params = useSearchParams();
  return [params.get(name) ?? "", useCallback((value) => setParams({ [name]: value }), [name])];
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
}
