"use client";
// Moves the view: wheel, pinch, drag, keys and buttons.
import { type KeyboardEvent, type PointerEvent, type RefObject, useCallback, useEffect, useRef, useState } from "react";
import type { Size } from "@/lib/use-size";
import { panView, type View, WHOLE, zoomView } from "./view";

const STEP = 1.6;
const PAN = 60;
const GLIDE_MS = 280;
const STILL = 4; // a press that moves less far is a click

export function isStill(): boolean {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

export function useMapView(place: RefObject<HTMLElement | null>, size: Size | null) {
  const [view, setView] = useState<View>(WHOLE);
  const now = useRef({ view, size });
  now.current = { view, size };
  const frame = useRef(0);

  const set = useCallback((next: View) => {
    cancelAnimationFrame(frame.current);
    setView(next);
  }, []);
  const glide = useCallback(
    (to: View) => {
      if (isStill()) return set(to);
      cancelAnimationFrame(frame.current);
      const from = now.current.view;
      const begin = performance.now();
      const step = (at: number) => {
        const share = Math.min(1, Math.max(0, (at - begin) / GLIDE_MS));
        setView(between(from, to, share * (2 - share)));
        if (share < 1) frame.current = requestAnimationFrame(step);
      };
      frame.current = requestAnimationFrame(step);
    },
    [set],
  );
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only when the size changes
  useEffect(() => set(WHOLE), [size?.width, size?.height]);

  const zoom = useCallback(
    (factor: number) => {
      const { view, size } = now.current;
      if (size) glide(zoomView(view, size, { factor, x: size.width / 2, y: size.height / 2 }));
    },
    [glide],
  );
  useWheel(place, now, set);
  const pointers = usePointers(now, set);
  const onKey = (event: KeyboardEvent): boolean => {
    const { view, size } = now.current;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [PAN, 0],
      ArrowRight: [-PAN, 0],
      ArrowUp: [0, PAN],
      ArrowDown: [0, -PAN],
    };
    const move = moves[event.key];
    if (!size || event.ctrlKey || event.metaKey || event.altKey) return false;
    if (move) set(panView(view, size, { x: move[0], y: move[1] }));
    else if (event.key === "+" || event.key === "=") zoom(STEP);
    else if (event.key === "-") zoom(1 / STEP);
    else if (event.key === "0") glide(WHOLE);
    else return false;
    return true;
  };
  return { view, glide, onKey, pointers, closer: () => zoom(STEP), farther: () => zoom(1 / STEP), whole: () => glide(WHOLE) };
}

type Now = RefObject<{ view: View; size: Size | null }>;

function between(from: View, to: View, share: number): View {
  const mix = (one: number, other: number) => one + (other - one) * share;
  return { k: mix(from.k, to.k), x: mix(from.x, to.x), y: mix(from.y, to.y) };
}

/** React's listeners are passive and cannot stop the page from scrolling. At the widest view, the page does scroll. */
function useWheel(place: RefObject<HTMLElement | null>, now: Now, set: (view: View) => void): void {
  useEffect(() => {
    const element = place.current;
    const turn = (event: WheelEvent) => {
      const { view, size } = now.current;
      if (!size || (view.k === 1 && event.deltaY > 0)) return;
      event.preventDefault();
      const factor = 2 ** (-event.deltaY * (event.ctrlKey ? 0.01 : event.deltaMode === 1 ? 0.06 : 0.0025));
      set(zoomView(view, size, { factor, x: event.offsetX, y: event.offsetY }));
    };
    element?.addEventListener("wheel", turn, { passive: false });
    return () => element?.removeEventListener("wheel", turn);
  }, [place, now, set]);
}

/** One finger or the mouse pans, two fingers zoom. `wasDrag`: the last press was not a click. */
function usePointers(now: Now, set: (view: View) => void) {
  const down = useRef(new Map<number, { x: number; y: number }>());
  const travelled = useRef(0);
  const end = (event: PointerEvent) => void down.current.delete(event.pointerId);
  return {
    wasDrag: () => travelled.current > STILL,
    handlers: {
      onPointerDown: (event: PointerEvent<HTMLElement>) => {
        if (down.current.size === 0) travelled.current = 0;
        down.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
        if (event.pointerType === "mouse") event.currentTarget.setPointerCapture(event.pointerId);
      },
      onPointerMove: (event: PointerEvent<HTMLElement>) => {
        const before = down.current.get(event.pointerId);
        const { view, size } = now.current;
        if (!before || !size) return;
        const here = { x: event.clientX, y: event.clientY };
        const by = { x: here.x - before.x, y: here.y - before.y };
        travelled.current += Math.hypot(by.x, by.y);
        const [other] = [...down.current].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
        down.current.set(event.pointerId, here);
        if (!other) return set(panView(view, size, by));
        const frame = event.currentTarget.getBoundingClientRect();
        const factor = Math.hypot(here.x - other.x, here.y - other.y) / Math.hypot(before.x - other.x, before.y - other.y);
        const middle = { x: (here.x + other.x) / 2 - frame.left, y: (here.y + other.y) / 2 - frame.top };
        set(zoomView(panView(view, size, { x: by.x / 2, y: by.y / 2 }), size, { factor, ...middle }));
      },
      onPointerUp: end,
      onPointerCancel: end,
    },
  };
}
