"use client";
// The theme's colours, for drawing on a canvas.
import { useSyncExternalStore } from "react";

const darkScheme = () => window.matchMedia("(prefers-color-scheme: dark)");

function subscribe(onChange: () => void): () => void {
  const observer = new MutationObserver(onChange);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  const scheme = darkScheme();
  scheme.addEventListener("change", onChange);
  return () => {
    observer.disconnect();
    scheme.removeEventListener("change", onChange);
  };
}

function current(): string {
  const { theme } = document.documentElement.dataset;
  return theme === "light" || theme === "dark" ? theme : darkScheme().matches ? "dark" : "light";
}

/** "light" or "dark". What is drawn on a canvas must be drawn again when it changes. */
export function useTheme(): string {
  return useSyncExternalStore(subscribe, current, () => "light");
}

/** A colour of app/globals.css by its name, such as "ink" or "series-1", as the browser resolves it for the theme. */
export function colour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(--color-${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
