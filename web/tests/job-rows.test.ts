import { describe, expect, it } from "vitest";
import { type Job, PAGE, Rows } from "@/components/jobs/job-rows";

const id = (number: number) => `job_${String(number).padStart(6, "0")}`;
/** Jobs from `first` down to `last`, newest first, as the hub lists them. */
function jobs(first: number, last: number, state = "queued"): Job[] {
  return Array.from({ length: first - last + 1 }, (_, index) => ({ id: id(first - index), state }) as Job);
}
const page = (first: number, last: number, state?: string) => ({
  jobs: jobs(first, last, state),
  next: last > 1 ? id(last) : null,
});
const shown = (rows: Rows) => rows.jobs.map((job) => Number(job.id.slice(4)));
const range = (first: number, last: number) => jobs(first, last).map((job) => Number(job.id.slice(4)));

function scrolled(): Rows {
  const rows = new Rows();
  rows.take(page(300, 201), null);
  rows.take(page(200, 101), id(201));
  return rows;
}

describe("take", () => {
  it("appends the pages one scrolls to, up to the end", () => {
    const rows = scrolled();
    expect([shown(rows).length, rows.next]).toEqual([200, id(101)]);
    rows.take(page(100, 1), id(101));
    expect(shown(rows)).toEqual(range(300, 1));
    expect(rows.next).toBeNull();
  });

  it("puts new jobs on top and keeps what is below", () => {
    const rows = scrolled();
    rows.take(page(305, 206), null);
    expect(shown(rows)).toEqual(range(305, 101));
    expect(rows.next).toBe(id(101));
  });

  it("takes a part in the middle anew, without what is gone from it", () => {
    const rows = scrolled();
    rows.take({ jobs: jobs(200, 101, "running").filter((job) => job.id !== id(150)), next: id(101) }, id(201));
    expect(shown(rows)).toEqual(range(300, 101).filter((number) => number !== 150));
    expect(rows.jobs.filter((job) => job.state === "running")).toHaveLength(99);
    expect(rows.next).toBe(id(101));
  });

  it("begins again after a gap, and ignores a late answer about a part that is no longer there", () => {
    const rows = scrolled();
    rows.take(page(900, 801), null);
    expect([shown(rows)[0], rows.jobs.length, rows.next]).toEqual([900, 100, id(801)]);
    rows.take(page(200, 101), id(201));
    expect(rows.jobs).toHaveLength(100);
  });

  it("is empty when the hub says so", () => {
    const rows = scrolled();
    rows.take({ jobs: [], next: null }, null);
    expect([rows.jobs, rows.next]).toEqual([[], null]);
  });
});

describe("partsWith", () => {
  it("names the cursor of each part that has one of the jobs", () => {
    const parts = scrolled().partsWith(new Set([id(300), id(202), id(150), "job_unknown"]));
    expect([...parts]).toEqual([
      [null, [id(300), id(202)]],
      [id(201), [id(150)]],
    ]);
  });

  it("gives cursors with which the hub returns exactly these jobs", () => {
    const rows = scrolled();
    for (const number of [300, 201, 200, 101]) {
      const [upper] = [...rows.partsWith(new Set([id(number)])).keys()];
      const after = rows.jobs.filter((job) => upper == null || job.id < upper).slice(0, PAGE);
      expect(after.map((job) => job.id)).toContain(id(number));
    }
  });
});
