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

it("asks for everything after a break at once, whatever pause was left; refusals and paused queries stay", async () => {
  const jobs = await watch("/jobs", { tookMs: 5000 });
  const paused = await watch("/events", { meta: { isPaused: true } });
  const refused = vi.fn(() => Promise.reject(new Error("403")));
  stops.push(new QueryObserver(queries, { queryKey: ["/admin"], queryFn: refused }).subscribe(() => {}));
  scheduler.refetchNamed(["/jobs"]);
  await vi.advanceTimersByTimeAsync(5300);
  scheduler.refetchAfterBreak();
  await vi.advanceTimersByTimeAsync(300);
  expect([jobs.mock.calls.length, paused.mock.calls.length, refused.mock.calls.length]).toEqual([2, 0, 1]);
});

it("only marks what nobody looks at", async () => {
  const ask = vi.fn(async () => "nodes");
  await queries.fetchQuery({ queryKey: ["/nodes"], queryFn: ask });
  scheduler.refetchNamed(["/nodes"]);
  await vi.advanceTimersByTimeAsync(1000);
  expect(ask).toHaveBeenCalledTimes(1);
  expect(queries.getQueryState(["/nodes"])?.isInvalidated).toBe(true);
});

it("fetches the first page of a scrolled list, and the pages whose rows changed", async () => {
  const asked: unknown[] = [];
  const jobs: Record<string, string[]> = { null: ["e", "d"], d: ["c", "b"], b: ["a"] };
  const pageOf = (param: unknown) => ({ jobs: jobs[String(param)]?.map((id) => ({ id })), next: jobs[String(param)]?.at(-1) });
  const options = {
    queryKey: ["/jobs"],
    queryFn: async ({ pageParam = null }: { pageParam?: unknown }) => {
      asked.push(pageParam);
      return pageOf(pageParam);
    },
  };
  stops.push(new QueryObserver(queries, options).subscribe(() => {}));
  await vi.advanceTimersByTimeAsync(0);
  queries.setQueryData(["/jobs"], { pages: [null, "d", "b"].map(pageOf), pageParams: [null, "d", "b"] });
  asked.length = 0;
  jobs.null = ["f", "e"];
  jobs.d = ["c", "a"]; // b is gone
  scheduler.refetchNamed(["/jobs", "b"]);
  await vi.advanceTimersByTimeAsync(300);
  expect(asked).toEqual([null, "d"]);
  expect(queries.getQueryData(["/jobs"])).toMatchObject({
    pages: [{ jobs: [{ id: "f" }, { id: "e" }, { id: "d" }] }, { jobs: [{ id: "c" }, { id: "a" }] }],
  });
  asked.length = 0;
  scheduler.refetchAfterBreak();
  await vi.advanceTimersByTimeAsync(300);
  expect(asked).toEqual([null, "d"]);
});

it("leaves the refetch to a query that has its own way", async () => {
  const refetch = vi.fn(async () => {});
  const jobs = await watch("/jobs", { meta: { refetch } });
  scheduler.refetchNamed(["/jobs"]);
  await vi.advanceTimersByTimeAsync(1000);
  expect([jobs.mock.calls.length, refetch.mock.calls.length]).toEqual([0, 1]);
});

it("does nothing once it is stopped", async () => {
  const jobs = await watch("/jobs");
  scheduler.refetchNamed(["/jobs"]);
  scheduler.stop();
  scheduler.refetchAll();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(jobs).not.toHaveBeenCalled();
});
