"use client";
// A ring spreads from each node on which a job has started or ended.
import { type RefObject, useEffect, useRef } from "react";
import type { Size } from "@/lib/use-size";
import { drawPulse, type Palette, prepare } from "./draw";
import type { MeshNode } from "./families";
import type { Mark } from "./marks";
import { tierColour } from "./tiers";
import { isStill } from "./use-map-view";

const LASTS_MS = 1400;
const AT_ONCE = 40;

interface Drawing {
  canvas: RefObject<HTMLCanvasElement | null>;
  marks: Mark[];
  size: Size | null;
  palette: Palette | null;
}

export function usePulses(nodes: MeshNode[], drawing: Drawing): void {
  const running = useRef(new Map<string, number>());
  const latest = useRef(drawing);
  latest.current = drawing;
  useEffect(() => {
    const before = running.current;
    running.current = new Map(nodes.map((node) => [node.id, node.running]));
    const changed = nodes.flatMap((node, index) => {
      const was = before.get(node.id);
      return was !== undefined && was !== node.running ? [index] : [];
    });
    if (changed.length === 0 || isStill()) return;
    return play(new Set(changed.slice(0, AT_ONCE)), nodes, latest);
  }, [nodes]);
}

function play(changed: Set<number>, nodes: MeshNode[], latest: RefObject<Drawing>): () => void {
  const begin = performance.now();
  let frame = 0;
  const step = (at: number) => {
    const { canvas, marks, size, palette } = latest.current;
    const context = canvas.current && size && prepare(canvas.current, size);
    const age = Math.max(0, (at - begin) / LASTS_MS);
    if (!context || !palette || age >= 1) return;
    for (const mark of marks) {
      const index = mark.nodes.find((node) => changed.has(node));
      const node = index === undefined ? undefined : nodes[index];
      if (node) drawPulse(context, mark, { colour: palette.tiers[tierColour(node.tier)] as string, age });
    }
    frame = requestAnimationFrame(step);
  };
  frame = requestAnimationFrame(step);
  return () => {
    cancelAnimationFrame(frame);
    const { canvas, size } = latest.current;
    if (canvas.current && size) prepare(canvas.current, size);
  };
}
