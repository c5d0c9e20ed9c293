// The marks of the visible nodes: a dot each, or a cluster with their number where they are too close.

import type { Size } from "@/lib/use-size";
import type { MeshNode } from "./families";
import { type Tier, tiersOf } from "./tiers";
import { CLOSEST, type View } from "./view";

export interface Mark {
  x: number; // on the screen
  y: number;
  radius: number;
  nodes: number[]; // their indexes in the list
  tiers: Tier[]; // of a cluster; empty: a single node
  box: { left: number; top: number; right: number; bottom: number }; // in pixels of the whole map
}

const CELL = 46;
const DENSE = 3; // this many in a cell become a cluster
const EDGE = 40; // marks outside the map may reach into it

/** Logarithmic in the capacity, so that a laptop is visible beside a rack. */
function dotRadius(node: MeshNode): number {
  return Math.min(11, 3.2 + 1.15 * Math.log2(1 + node.capacity / 1000));
}

function clusterRadius(count: number): number {
  return Math.min(30, 11 + 5 * Math.log10(count));
}

export function makeMarks(nodes: MeshNode[], at: Float32Array, seen: { view: View; size: Size }): Mark[] {
  const { view, size } = seen;
  const cells = new Map<number, number[]>();
  for (let index = 0; index < nodes.length; index++) {
    const x = (at[index * 2] as number) * view.k;
    const y = (at[index * 2 + 1] as number) * view.k;
    if (!isNear(x + view.x, y + view.y, size)) continue;
    // The grid moves with the map, so that marks do not jump while it is dragged.
    const cell = Math.floor(y / CELL) * 100_000 + Math.floor(x / CELL);
    const there = cells.get(cell);
    if (there) there.push(index);
    else cells.set(cell, [index]);
  }
  const dots: Mark[] = [];
  const clusters: Mark[] = [];
  for (const there of cells.values()) {
    if (there.length >= DENSE && view.k < CLOSEST) clusters.push(cluster(there, { nodes, at, view }));
    else for (const index of there) dots.push(dot(index, { nodes, at, view }));
  }
  return absorbMarks(dots, mergeMarks(clusters, { nodes, at, view }), { nodes, at, view });
}

function isNear(x: number, y: number, size: Size): boolean {
  return x > -EDGE && y > -EDGE && x < size.width + EDGE && y < size.height + EDGE; // also false for NaN
}

interface Drawn {
  nodes: MeshNode[];
  at: Float32Array;
  view: View;
}

function dot(index: number, { nodes, at, view }: Drawn): Mark {
  const [x, y] = [at[index * 2] as number, at[index * 2 + 1] as number];
  return {
    x: x * view.k + view.x,
    y: y * view.k + view.y,
    radius: dotRadius(nodes[index] as MeshNode),
    nodes: [index],
    tiers: [],
    box: { left: x, right: x, top: y, bottom: y },
  };
}

function cluster(there: number[], { nodes, at, view }: Drawn): Mark {
  const box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  let [sumX, sumY] = [0, 0];
  for (const index of there) {
    const x = at[index * 2] as number;
    const y = at[index * 2 + 1] as number;
    box.left = Math.min(box.left, x);
    box.right = Math.max(box.right, x);
    box.top = Math.min(box.top, y);
    box.bottom = Math.max(box.bottom, y);
    sumX += x;
    sumY += y;
  }
  const { length } = there;
  return {
    x: (sumX / length) * view.k + view.x,
    y: (sumY / length) * view.k + view.y,
    radius: clusterRadius(length),
    nodes: there,
    tiers: tiersOf(there.map((index) => nodes[index] as MeshNode)),
    box,
  };
}

/** Merges clusters until none overlaps another. */
function mergeMarks(clusters: Mark[], drawn: Drawn): Mark[] {
  const left = [...clusters].sort((one, other) => other.nodes.length - one.nodes.length);
  const done: Mark[] = [];
  while (left.length > 0) {
    const mark = left.shift() as Mark;
    const touching = left.findIndex(
      (other) => Math.hypot(other.x - mark.x, other.y - mark.y) < (other.radius + mark.radius) * 0.92,
    );
    if (touching === -1) done.push(mark);
    else {
      const [other] = left.splice(touching, 1);
      left.unshift(cluster([...mark.nodes, ...(other as Mark).nodes], drawn));
    }
  }
  return done;
}

/** Adds dots that a cluster would cover to it. */
function absorbMarks(dots: Mark[], clusters: Mark[], drawn: Drawn): Mark[] {
  const taken = new Map<Mark, number[]>();
  const free = dots.filter((dot) => {
    const over = clusters.find((mark) => Math.hypot(mark.x - dot.x, mark.y - dot.y) < mark.radius + dot.radius / 2);
    if (over) taken.set(over, [...(taken.get(over) ?? []), ...dot.nodes]);
    return !over;
  });
  const grown = clusters.map((mark) => {
    const more = taken.get(mark);
    return more ? cluster([...mark.nodes, ...more], drawn) : mark;
  });
  return [...free, ...grown];
}

/** The mark under the pointer, with some tolerance around small ones. */
export function markAt(marks: Mark[], x: number, y: number): number {
  let best = -1;
  let nearest = Infinity;
  marks.forEach((mark, index) => {
    const distance = Math.hypot(mark.x - x, mark.y - y) - Math.max(mark.radius, 8);
    if (distance <= 2 && distance < nearest) [best, nearest] = [index, distance];
  });
  return best;
}
