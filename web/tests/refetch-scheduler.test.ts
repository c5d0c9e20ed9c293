import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { refetchScheduler } from "@/lib/refetch-scheduler";

const isAffected = (key: readonly unknown[], names: Set<string>) => names.has(String(key[0]));
let queries: QueryClient;
let scheduler: ReturnType<typeof refetchScheduler>;
const stops: (() => void)[] = [];

beforeEach(() => {
  vi.useFakeTimers();
  queries = new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: Number.POSITIVE_INFINITY } } });
  scheduler = refetchScheduler(queries, isAffected);
});

afterEach(() => {
  scheduler.stop();
  for (const stop of stops.splice(0)) stop();
  queries.clear();
  vi.useRealTimers();
});

/** A query that somebody looks at, whose answers take `tookMs`. */
async function watch(name: string, { tookMs = 0, meta = {} }: { tookMs?: number; meta?: Record<string, unknown> } = {}) {
  const ask = vi.fn(() => new Promise((resolve) => setTimeout(resolve, tookMs, name)));
  stops.push(new QueryObserver(queries, { queryKey: [name], queryFn: ask, meta }).subscribe(() => {}));
  await vi.advanceTimersByTimeAsync(tookMs);
  ask.mockClear();
  return ask;
}

it("gathers the events of a busy moment into one request, and asks for nothing else", async () => {
  const [jobs, nodes] = [await watch("/jobs"), await watch("/nodes")];
  for (let event = 0; event < 50; event += 1) scheduler.refetchNamed(["/jobs"]);
  await vi.advanceTimersByTimeAsync(299);
  expect(jobs).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1);
  expect(jobs).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(60_000);
  expect([jobs.mock.calls.length, nodes.mock.calls.length]).toEqual([1, 0]);
});

it("rests after a slow answer four times as long as it took, and forgets no event meanwhile", async () => {
  const jobs = await watch("/jobs", { tookMs: 2000 });
  scheduler.refetchNamed(["/jobs"]);
  await vi.advanceTimersByTimeAsync(300);
  scheduler.refetchNamed(["/jobs"]); // the answer that is on its way may be of before this
  await vi.advanceTimersByTimeAsync(2000 + 7900);
  expect(jobs).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(700);
  expect(jobs).toHaveBeenCalledTimes(2);
});

it("keeps to the pause that a query asks for", async () => {
  const statement = await watch("/credits", { meta: { pauseMs: 12_000 } });
  const every = setInterval(() => scheduler.refetchNamed(["/credits"]), 100);
  await vi.advanceTimersByTimeAsync(60_000);
  clearInterval(every);
  expect(statement.mock.calls.length).toBeGreaterThanOrEqual(4);
  expect(statement.mock.calls.length).toBeLessThanOrEqual(5);
});

it("asks for everything after a break at once, whatever pause was left; refusals and manual queries stay", async () => {
  const jobs = await watch("/jobs", { tookMs: 5000 });
  const manual = await watch("/events", { meta: { manualRefetch: true } });
  const refused = vi.fn(() => Promise.reject(new Error("403")));
  stops.push(new QueryObserver(queries, { queryKey: ["/admin"], queryFn: refused }).subscribe(() => {}));
  scheduler.refetchNamed(["/jobs"]);
  await vi.advanceTimersByTimeAsync(5300);
  scheduler.refetchAfterBreak();
  await vi.advanceTimersByTimeAsync(300);
  expect([jobs.mock.calls.length, manual.mock.calls.length, refused.mock.calls.length]).toEqual([2, 0, 1]);
});

it("only marks what nobody looks at", async () => {
  const ask = vi.fn(async () => "nodes");
  await queries.fetchQuery({ queryKey: ["/nodes"], queryFn: ask });
  scheduler.refetchNamed(["/nodes"]);
  await vi.advanceTimersByTimeAsync(1000);
  expect(ask).toHaveBeenCalledTimes(1);
  expect(queries.getQueryState(["/nodes"])?.isInvalidated).toBe(true);
});

it("fetches of a scrolled list the first page alone", async () => {
  const asked: unknown[] = [];
  const options = {
    queryKey: ["/groups"],
    queryFn: async ({ pageParam }: { pageParam?: unknown }) => {
      asked.push(pageParam);
      return { groups: [{ id: "new" }, { id: "b" }], next: "b" };
    },
  };
  stops.push(new QueryObserver(queries, options).subscribe(() => {}));
  await vi.advanceTimersByTimeAsync(0);
  const scrolled = {
    pages: [
      { groups: [{ id: "b" }], next: "b" },
      { groups: [{ id: "a" }], next: null },
    ],
    pageParams: [null, "b"],
  };
  queries.setQueryData(["/groups"], scrolled);
  asked.length = 0;
  scheduler.refetchNamed(["/groups"]);
  await vi.advanceTimersByTimeAsync(300);
  expect(asked).toEqual([null]);
  expect(queries.getQueryData(["/groups"])).toMatchObject({
    pages: [{ groups: [{ id: "new" }, { id: "b" }] }, { groups: [{ id: "a" }] }],
  });
});

it("does nothing once it is stopped", async () => {
  const jobs = await watch("/jobs");
  scheduler.refetchNamed(["/jobs"]);
  scheduler.stop();
  scheduler.refetchAll();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(jobs).not.toHaveBeenCalled();
});
