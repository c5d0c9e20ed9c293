"use client";
// Replaces react-remove-scroll under Radix's dialogs and menus (see next.config.ts), which adds a <style> element that the
// hub's Content-Security-Policy forbids. Properties set by a script are allowed.
import { type ReactNode, useEffect } from "react";

let locks = 0;

function lock(): void {
  locks += 1;
  if (locks > 1) return;
  const { style, clientWidth } = document.documentElement;
  // Keep the space of the scroll bar, or the page behind would move.
  style.scrollbarGutter = window.innerWidth > clientWidth ? "stable" : "";
  style.overflow = "hidden";
}

function unlock(): void {
  locks -= 1;
  if (locks > 0) return;
  const { style } = document.documentElement;
  style.overflow = "";
  style.scrollbarGutter = "";
}

export function RemoveScroll({ children }: { children: ReactNode }) {
  useEffect(() => {
    lock();
    return unlock;
  }, []);
  return children;
}
