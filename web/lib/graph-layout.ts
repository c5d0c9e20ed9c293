// Where the jobs of a graph are drawn: a column after those of all jobs before, and a row in it.
import type { Schemas } from "@/lib/api/client";

export type Graph = Schemas["GraphView"];
export type GraphJob = Schemas["GraphJob"];

export const BOX = { width: 184, height: 56 };
const GAP = { x: 56, y: 16 };
const MARGIN = 4;

export interface Placed {
  job: GraphJob;
  x: number;
  y: number;
}

export interface Edge {
  key: string;
  path: string;
  dashed: boolean; // the job runs on another condition than success
}

/** The jobs of a graph are in order: each after those that it comes after. */
export function layoutOf(graph: Graph): { placed: Placed[]; edges: Edge[]; width: number; height: number } {
  const columns = new Map<string, number>();
  for (const job of graph.jobs) columns.set(job.id, 0);
  const before = new Map<string, string[]>();
  for (const edge of graph.edges) before.set(edge.job_id, [...(before.get(edge.job_id) ?? []), edge.after_id]);
  const rows: number[] = [];
  const placed = new Map<string, Placed>();
  for (const job of graph.jobs) {
    const column = Math.max(0, ...(before.get(job.id) ?? []).map((id) => (columns.get(id) ?? -1) + 1));
    const row = rows[column] ?? 0;
    rows[column] = row + 1;
    columns.set(job.id, column);
    placed.set(job.id, { job, x: MARGIN + column * (BOX.width + GAP.x), y: MARGIN + row * (BOX.height + GAP.y) });
  }
  return {
    placed: [...placed.values()],
    edges: graph.edges.flatMap(({ after_id, job_id }) => edgeBetween(placed.get(after_id), placed.get(job_id))),
    width: 2 * MARGIN + rows.length * (BOX.width + GAP.x) - GAP.x,
    height: 2 * MARGIN + Math.max(0, ...rows) * (BOX.height + GAP.y) - GAP.y,
  };
}

function edgeBetween(from: Placed | undefined, to: Placed | undefined): Edge[] {
  if (!from || !to) return [];
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = GAP.x * 0.6;
  const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 6} ${y2}`;
  return [{ key: `${from.job.id} ${to.job.id}`, path, dashed: (to.job.when ?? "success") !== "success" }];
}
