// A group's items as cells of a grid. A job that carries several items has a cell for each of them.
import type { Schemas } from "@/lib/api/client";

export type ItemState = Schemas["ItemState"];

/** The states of an item in the order of the legend, with their colours. */
export const LOOKS = [
  { state: "succeeded", colour: "good", swatch: "bg-good" },
  { state: "running", colour: "accent", swatch: "bg-accent" },
  { state: "leased", colour: "info", swatch: "bg-info" },
  { state: "queued", colour: "line-strong", swatch: "bg-line-strong" },
  { state: "expected", colour: "line", swatch: "bg-line" },
  { state: "failed", colour: "bad", swatch: "bg-bad" },
  { state: "expired", colour: "bad", swatch: "bg-bad" },
  { state: "cancelled", colour: "warn", swatch: "bg-warn" },
] as const;

const AT = new Map<string, number>(LOOKS.map((look, index) => [look.state, index]));
const QUEUED = AT.get("queued") ?? 0;
const FAILED = AT.get("failed") ?? 0;

const CELLS_MAX = 250_000;

export interface Cells {
  count: number;
  look: Uint8Array; // of each cell, as an index into LOOKS
  item: Uint32Array; // the item that each cell is of
}

export function cellsOf(items: ItemState[]): Cells {
  const count = Math.min(
    CELLS_MAX,
    items.reduce((sum, item) => sum + (item.bundled ?? 1), 0),
  );
  const look = new Uint8Array(count);
  const item = new Uint32Array(count);
  let at = 0;
  items.forEach((one, index) => {
    const own = AT.get(one.state) ?? QUEUED;
    const many = one.bundled ?? 1;
    const failed = one.items_failed ?? 0;
    for (let part = 0; part < many && at < count; part += 1, at += 1) {
      look[at] = part >= many - failed ? FAILED : own;
      item[at] = index;
    }
  });
  return { count, look, item };
}
