import { expect, it } from "vitest";
import { type Graph, layoutOf } from "@/lib/graph-layout";

function graph(ids: string, ...edges: string[]): Graph {
  return {
    jobs: [...ids].map((id) => ({
      id,
      name: id,
      state: "queued",
      reason: "waiting_for_jobs",
      when: id === "d" ? "failure" : "success",
    })),
    edges: edges.map((edge) => ({ after_id: edge.charAt(0), job_id: edge.charAt(1), is_argument: false })),
    more: false,
  };
}

it("places each job in a column after those before it", () => {
  const { placed, edges, width, height } = layoutOf(graph("abcd", "ab", "ac", "bd", "ad", "xd"));
  const at = Object.fromEntries(placed.map(({ job, x, y }) => [job.id, [x, y]]));
  expect([at.b?.[0], at.c?.[0]]).toEqual([at.b?.[0], at.b?.[0]]);
  expect((at.a?.[0] ?? 0) < (at.b?.[0] ?? 0) && (at.b?.[0] ?? 0) < (at.d?.[0] ?? 0)).toBe(true);
  expect(at.b?.[1]).not.toBe(at.c?.[1]);
  expect(edges.map(({ key, dashed }) => [key, dashed])).toEqual([
    ["a b", false],
    ["a c", false],
    ["b d", true],
    ["a d", true],
  ]);
  expect([width, height].every((size) => size > 0 && Number.isFinite(size))).toBe(true);
});

it("places a job that comes after none next to the first one after it", () => {
  const { placed } = layoutOf(graph("abcsd", "ab", "bc", "cd", "sd"));
  const x = Object.fromEntries(placed.map((one) => [one.job.id, one.x]));
  expect(x.s).toBe(x.c);
});
