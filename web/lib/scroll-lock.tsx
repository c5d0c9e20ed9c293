"use client";
// Takes the place of react-remove-scroll under Radix's dialogs and menus (see next.config.ts). That one writes a <style>
// element of its own, which the hub's policy forbids; properties set by a script are allowed.
import { type ReactNode, useEffect } from "react";

let locks = 0;

function lock(): void {
  locks += 1;
  if (locks > 1) return;
  const { style, clientWidth } = document.documentElement;
  // The place of the scroll bar is kept, or the page behind would jump.
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
