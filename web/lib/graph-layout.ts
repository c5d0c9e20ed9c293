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
  const columns = columnsOf(graph);
  const rows: number[] = [];
  const placed = new Map<string, Placed>();
  for (const job of graph.jobs) {
    const column = columns.get(job.id) ?? 0;
    const row = rows[column] ?? 0;
    rows[column] = row + 1;
    placed.set(job.id, { job, x: MARGIN + column * (BOX.width + GAP.x), y: MARGIN + row * (BOX.height + GAP.y) });
  }
  return {
    placed: [...placed.values()],
    edges: graph.edges.flatMap(({ after_id, job_id }) => edgeBetween(placed.get(after_id), placed.get(job_id))),
    width: 2 * MARGIN + rows.length * (BOX.width + GAP.x) - GAP.x,
    height: 2 * MARGIN + Math.max(0, ...rows.map((count) => count ?? 0)) * (BOX.height + GAP.y) - GAP.y,
  };
}

/** After all jobs before; a job that comes after none is next to the first job after it, so that few edges cross boxes. */
function columnsOf(graph: Graph): Map<string, number> {
  const before = grouped(graph.edges.map(({ job_id, after_id }) => [job_id, after_id]));
  const after = grouped(graph.edges.map(({ job_id, after_id }) => [after_id, job_id]));
  const columns = new Map<string, number>();
  for (const { id } of graph.jobs) {
    columns.set(id, Math.max(0, ...(before.get(id) ?? []).map((other) => (columns.get(other) ?? -1) + 1)));
  }
  for (const { id } of graph.jobs) {
    const next = after.get(id);
    if (!before.has(id) && next) columns.set(id, Math.max(0, Math.min(...next.map((other) => columns.get(other) ?? 0)) - 1));
  }
  return columns;
}

function grouped(pairs: [string, string][]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const [key, value] of pairs) found.set(key, [...(found.get(key) ?? []), value]);
  return found;
}

function edgeBetween(from: Placed | undefined, to: Placed | undefined): Edge[] {
  if (!from || !to) return [];
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = GAP.x * 0.6;
  const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 6} ${y2}`;
  return [{ key: `${from.job.id} ${to.job.id}`, path, dashed: (to.job.when ?? "success") !== "success" }];
}
