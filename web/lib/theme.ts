"use client";
// The theme's colours for what is drawn on a canvas, where no style sheet reaches.
import { useSyncExternalStore } from "react";

function subscribe(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  return () => observer.disconnect();
}

const current = () => document.documentElement.dataset.theme ?? "light";

/** "light" or "dark", as it is shown now. Whoever draws by hand draws again when it changes. */
export function useTheme(): string {
  return useSyncExternalStore(subscribe, current, () => "light");
}

/** The value of a colour of app/globals.css, by its name: "ink", "series-1". */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
