"use client";
// Thousands of items at a glance, a cell each on a canvas. The pointer or the arrow keys select one.
import { useRouter } from "next/navigation";
import { type KeyboardEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { count } from "@/lib/format";
import { jobHref } from "@/lib/links";
import { colour, useTheme } from "@/lib/theme";
import { useSize } from "@/lib/use-size";
import { type Cells, cellsOf, type ItemState, LOOKS } from "./cells";

interface Layout {
  size: number;
  step: number;
  columns: number;
  rows: number;
}

function layoutFor(width: number, cells: number): Layout {
  const size = cells <= 150 ? 22 : cells <= 800 ? 15 : cells <= 3000 ? 10 : cells <= 7000 ? 7 : cells <= 40_000 ? 5 : 3;
  const step = size + (size > 9 ? 3 : size > 5 ? 2 : 1);
  const columns = Math.max(1, Math.floor((width + step - size) / step));
  return { size, step, columns, rows: Math.ceil(cells / columns) };
}

export function ItemGrid({ items }: { items: ItemState[] }) {
  const cells = useMemo(() => cellsOf(items), [items]);
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(box);
  const layout = layoutFor(width, cells.count);
  const [at, setAt] = useState<number | null>(null);
  const [byKey, setByKey] = useState(false);
  const theme = useTheme();
  const router = useRouter();
  const { size, step, columns, rows } = layout;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a theme has its own colours
  useLayoutEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, cells, layoutFor(width, cells.count));
  }, [cells, width, theme]);

  const chosen = at !== null && at < cells.count ? items[cells.item[at] as number] : undefined;
  const open = () => {
    if (chosen?.job_id) router.push(jobHref(chosen.job_id));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, number> = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: columns,
      ArrowUp: -columns,
      PageDown: columns * 10,
      PageUp: -columns * 10,
      Home: -cells.count,
      End: cells.count,
    };
    const move = moves[event.key];
    if (event.key === "Enter") open();
    if (move === undefined) return;
    event.preventDefault();
    setByKey(true);
    const first = event.key === "End" ? cells.count - 1 : 0;
    setAt((before) => Math.min(cells.count - 1, Math.max(0, before === null ? first : before + move)));
  };
  const marker = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (byKey && at !== null) marker.current?.scrollIntoView({ block: "nearest" });
  }, [at, byKey]);
  return (
    <div className="grid grid-cols-1 gap-2">
      <p aria-live={byKey ? "polite" : "off"} className="min-h-6 truncate text-sm">
        {chosen && at !== null ? (
          <ItemDescription item={chosen} at={at} look={LOOKS[cells.look[at] as number]?.state ?? chosen.state} />
        ) : (
          <span className="text-muted">Point at a cell, or use the arrow keys and Enter to open its job.</span>
        )}
      </p>
      <div
        ref={box}
        role="application"
        aria-label={`Grid of ${count(cells.count)} items. Arrow keys move, Enter opens the job. The tables below list the same items.`}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onBlur={() => setByKey(false)}
        className="relative max-h-[30rem] min-h-8 cursor-pointer overflow-y-auto overflow-x-hidden"
      >
        <canvas
          ref={canvas}
          onMouseMove={(event) => {
            const { left, top } = event.currentTarget.getBoundingClientRect();
            const column = Math.floor((event.clientX - left) / step);
            const index = Math.floor((event.clientY - top) / step) * columns + column;
            setByKey(false);
            setAt(column < columns && index < cells.count ? index : null);
          }}
          onMouseLeave={() => setAt(null)}
          onClick={open}
          className="block"
          style={{ width: columns * step, height: rows * step }}
        />
        {chosen && at !== null && (
          <span
            ref={marker}
            aria-hidden="true"
            className="pointer-events-none absolute rounded-sm outline-2 outline-ink outline-offset-1"
            style={{ left: (at % columns) * step, top: Math.floor(at / columns) * step, width: size, height: size }}
          />
        )}
      </div>
    </div>
  );
}

/** As high as the grid will be, so that nothing moves when it arrives. */
export function GridSpace({ cells }: { cells: number }) {
  const box = useRef<HTMLDivElement>(null);
  const { rows, step } = layoutFor(useSize(box).width, cells);
  return (
    <div role="status" aria-label="Loading the grid" className="grid grid-cols-1 gap-2">
      <p className="min-h-6 text-sm">&nbsp;</p>
      <div ref={box} className="max-h-[30rem] min-h-8 animate-pulse rounded-md bg-line/70" style={{ height: rows * step }} />
    </div>
  );
}

function ItemDescription({ item, at, look }: { item: ItemState; at: number; look: string }) {
  const many = item.bundled ?? 1;
  return (
    <>
      <span className="num text-muted">{count(at + 1)}</span>{" "}
      <span className="font-mono">{item.key ?? item.job_id ?? "(no key)"}</span> <strong>{look}</strong>
      {many > 1 && <span className="text-muted"> · one of {count(many)} items of its job</span>}
    </>
  );
}

/** One path for each colour, or ten thousand cells would take too long. */
function draw(canvas: HTMLCanvasElement, cells: Cells, { size, step, columns, rows }: Layout): void {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.ceil(columns * step * scale);
  canvas.height = Math.ceil(rows * step * scale);
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(scale, scale);
  LOOKS.forEach((look, index) => {
    context.beginPath();
    for (let at = 0; at < cells.count; at += 1) {
      if (cells.look[at] === index) context.rect((at % columns) * step, Math.floor(at / columns) * step, size, size);
    }
    context.fillStyle = colour(look.colour);
    context.fill();
  });
  if (size >= 10) cross(context, cells, { size, step, columns, rows });
}

/** Crosses out failed cells, so that the colour is not the only sign. */
function cross(context: CanvasRenderingContext2D, cells: Cells, { size, step, columns }: Layout): void {
  const failed = new Set(LOOKS.flatMap((look, index) => (look.colour === "bad" ? [index] : [])));
  const inset = size * 0.28;
  context.beginPath();
  for (let at = 0; at < cells.count; at += 1) {
    if (!failed.has(cells.look[at] as number)) continue;
    const left = (at % columns) * step;
    const top = Math.floor(at / columns) * step;
    context.moveTo(left + inset, top + inset);
    context.lineTo(left + size - inset, top + size - inset);
    context.moveTo(left + size - inset, top + inset);
    context.lineTo(left + inset, top + size - inset);
  }
  context.strokeStyle = colour("surface");
  context.lineWidth = Math.max(1.2, size / 11);
  context.stroke();
}
