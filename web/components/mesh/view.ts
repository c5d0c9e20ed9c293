// The visible part of the map: scaled by k, then moved. Always inside the map.
import type { Size } from "@/lib/use-size";

export interface View {
  k: number;
  x: number;
  y: number;
}

export const WHOLE: View = { k: 1, x: 0, y: 0 };
export const CLOSEST = 64;

function clampView(view: View, { width, height }: Size): View {
  const k = Math.min(CLOSEST, Math.max(1, view.k));
  const clamp = (value: number, length: number) => Math.min(0, Math.max(length * (1 - k), value));
  return { k, x: clamp(view.x, width), y: clamp(view.y, height) };
}

/** Zooms by a factor around the point (x, y). */
export function zoomView(view: View, size: Size, by: { factor: number; x: number; y: number }): View {
  const k = Math.min(CLOSEST, Math.max(1, view.k * by.factor));
  const grown = k / view.k;
  return clampView({ k, x: by.x - (by.x - view.x) * grown, y: by.y - (by.y - view.y) * grown }, size);
}

export function panView(view: View, size: Size, by: { x: number; y: number }): View {
  return clampView({ ...view, x: view.x + by.x, y: view.y + by.y }, size);
}

/** The view that shows this part of the whole map. */
export function fitView(size: Size, box: { left: number; top: number; right: number; bottom: number }): View {
  const room = 0.7;
  const across = Math.max(box.right - box.left, 1e-3);
  const down = Math.max(box.bottom - box.top, 1e-3);
  const k = Math.min(CLOSEST, Math.max(1, room * Math.min(size.width / across, size.height / down)));
  const x = size.width / 2 - (k * (box.left + box.right)) / 2;
  const y = size.height / 2 - (k * (box.top + box.bottom)) / 2;
  return clampView({ k, x, y }, size);
}
