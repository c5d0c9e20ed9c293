// The rows of the list of jobs: parts of it are fetched again one by one and merged into what is there.
import type { Schemas } from "@/lib/api/client";

export type Job = Schemas["JobView"];
type JobPage = Schemas["JobPage"];

export const PAGE = 100;

/** Rows in the order of the hub, newest first: ids sort by time. */
export class Rows {
  jobs: Job[] = [];
  next: string | null = null; // where the rest begins; null: there is no more

  /** `upper`: the page has what is older than this; null: the newest. What should be in it and is not, is gone. */
  take(page: JobPage, upper: string | null): void {
    if (upper !== null && this.next !== null && upper < this.next) return; // of a part that is no longer in the list
    const lower = page.next ?? "";
    const newest = this.jobs[0]?.id;
    if (upper === null && newest !== undefined && lower > newest) {
      // So much came at once that there is a hole between: begin again.
      this.jobs = page.jobs;
      this.next = page.next ?? null;
      return;
    }
    const above = upper === null ? [] : this.jobs.filter((job) => job.id >= upper);
    const below = this.jobs.filter((job) => job.id < lower);
    const isLast = below.length === 0 && (this.next === null || lower <= this.next);
    this.jobs = [...above, ...page.jobs, ...below];
    if (isLast) this.next = page.next ?? null;
  }

  /** The cursors of the parts that have these jobs. */
  partsWith(ids: Set<string>): Map<string | null, string[]> {
    const parts = new Map<string | null, string[]>();
    this.jobs.forEach((job, index) => {
      if (!ids.has(job.id)) return;
      const first = Math.floor(index / PAGE) * PAGE;
      const upper = first === 0 ? null : (this.jobs[first - 1]?.id ?? null);
      parts.set(upper, [...(parts.get(upper) ?? []), job.id]);
    });
    return parts;
  }
}
