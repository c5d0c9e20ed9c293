"use client";
// Filters and choices live in the address, so that a view can be sent to somebody and "back" works.
import type { Route } from "next";
import { usePathname, useRouter, useSearchParams } from "next/navigation";
import { useCallback } from "react";

export function useParam(name: string): [string, (value: string) => void] {
  const params = useSearchParams();
  const set = useSetParams();
  return [params.get(name) ?? "", useCallback((value) => set({ [name]: value }), [set, name])];
}

/** Sets several at once; an empty one is taken out. Filters replace the entry in the history, `push` adds one. */
export function useSetParams(): (changes: Record<string, string | string[]>, how?: "replace" | "push") => void {
  const router = useRouter();
  const pathname = usePathname();
  const params = useSearchParams();
  return useCallback(
    (changes, how = "replace") => {
      const next = new URLSearchParams(params);
      for (const [name, value] of Object.entries(changes)) {
        next.delete(name);
        for (const one of [value].flat()) if (one) next.append(name, one);
      }
      const search = next.size > 0 ? `?${next}` : "";
      router[how](`${pathname}${search}` as Route, { scroll: false });
    },
    [router, pathname, params],
  );
}
