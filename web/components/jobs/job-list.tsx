"use client";
import { keepPreviousData } from "@tanstack/react-query";
import { Ban, Plus } from "lucide-react";
import { useRouter } from "next/navigation";
import { useMemo, useState } from "react";
import { Button, ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { DataTable } from "@/components/ui/data-table";
import { Confirm } from "@/components/ui/dialog";
import { Page } from "@/components/ui/page";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { $api, answerOf, client, type Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { count, pluralize } from "@/lib/format";
import { jobHref } from "@/lib/links";
import { PAGED, useRows } from "@/lib/paging";
import { useRole } from "@/lib/session";
import { jobColumns } from "./job-columns";
import { JobFilterBar } from "./job-filters";
import { clearFilters, useJobFilters } from "./use-job-filters";

export type Job = Schemas["JobView"];

const PROGRESS_EVERY_MS = 5000; // the stream of news does not report progress
const PARALLEL = 6; // requests that a browser sends to one hub at a time

export function JobList() {
  const { query, states, some } = useJobFilters();
  const list = $api.useInfiniteQuery(
    "get",
    "/jobs",
    { params: { query: { ...query, limit: 100 } } },
    {
      ...PAGED,
      placeholderData: keepPreviousData,
      refetchInterval: ({ state: { data } }) => {
        const pages = data?.pages ?? [];
        return pages[0]?.jobs.some((job) => job.state === "running") ? PROGRESS_EVERY_MS * pages.length : false;
      },
    },
  );
  const { rows, more } = useRows(list, (page) => page.jobs);
  const router = useRouter();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const showOwner = useRole("admin") && query.all !== false;
  const columns = useMemo(() => {
    const toggle = (id: string) => setChosen((before) => before.symmetricDifference(new Set([id])));
    return jobColumns({ chosen, toggle, showOwner });
  }, [chosen, showOwner]);
  return (
    <Page
      title="Jobs"
      actions={
        <ButtonLink href="/submit" look="primary" className="lg:hidden">
          <Plus /> Submit a job
        </ButtonLink>
      }
    >
      <JobFilterBar states={states} some={some} />
      <Card flush>
        <Selection rows={rows} chosen={chosen} choose={setChosen} more={more.has} />
        <QueryView query={list} skeleton={<SkeletonRows rows={8} />}>
          {() => (
            <div className={list.isPlaceholderData ? "opacity-50" : undefined} aria-busy={list.isPlaceholderData}>
              <DataTable
                label="Jobs"
                columns={columns}
                rows={rows}
                rowKey={(job) => job.id}
                rowHeight={58}
                height="max(24rem, calc(100dvh - 18rem))"
                onRow={(job) => router.push(jobHref(job.id))}
                more={more}
                empty={<NoJobs some={some} />}
              />
            </div>
          )}
        </QueryView>
      </Card>
    </Page>
  );
}

interface SelectionProps {
  rows: Job[];
  chosen: ReadonlySet<string>;
  choose: (ids: ReadonlySet<string>) => void;
  more: boolean;
}

/** The line above the table: the number of jobs, and actions on the selected ones. */
function Selection({ rows, chosen, choose, more }: SelectionProps) {
  const toast = useToast();
  const able = rows.filter((job) => job.can_cancel);
  const picked = able.filter((job) => chosen.has(job.id));
  // Reported in a toast: the dialog disappears with the last selected row, even if that job ends by itself.
  const cancel = async () => {
    const refusals = await cancelAll(picked.map((job) => job.id));
    choose(new Set());
    if (refusals.length === 0) {
      toast.success(picked.length === 1 ? "Job cancelled." : `${count(picked.length)} jobs cancelled.`);
      return;
    }
    const why = asProblem(refusals[0]);
    const detail = `${count(refusals.length)} of ${pluralize(picked.length, "job")} not cancelled. ${why.detail}`;
    toast.error({ ...why, detail });
  };
  const one = picked.length === 1;
  return (
    <div className="flex min-h-13 flex-wrap items-center gap-2 border-line border-b px-3 py-2 text-sm">
      <span aria-live="polite" className="text-muted">
        {picked.length > 0
          ? `${count(picked.length)} selected`
          : `${count(rows.length)}${more ? "+" : ""} ${rows.length === 1 && !more ? "job" : "jobs"}`}
      </span>
      <div className="ml-auto flex items-center gap-2">
        {able.length > picked.length && (
          <Button small look="quiet" onClick={() => choose(new Set(able.map((job) => job.id)))}>
            Select {count(able.length)} that can be cancelled
          </Button>
        )}
        {picked.length > 0 && (
          <>
            <Button small look="quiet" onClick={() => choose(new Set())}>
              Clear the selection
            </Button>
            <Confirm
              title={one ? `Cancel ${picked[0]?.name || "this job"}?` : `Cancel ${count(picked.length)} jobs?`}
              action={one ? "Cancel the job" : `Cancel ${count(picked.length)} jobs`}
              danger
              confirm={cancel}
              trigger={(open) => (
                <Button small look="danger" onClick={open}>
                  <Ban /> Cancel
                </Button>
              )}
            >
              Running jobs are stopped with everything they started. This costs nothing and cannot be undone.
            </Confirm>
          </>
        )}
      </div>
    </div>
  );
}

/** Cancels a few at a time; returns the refusals. */
async function cancelAll(ids: string[]): Promise<unknown[]> {
  const waiting = [...ids];
  const refusals: unknown[] = [];
  const work = async () => {
    for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
      const request = client.POST("/jobs/{job_id}/cancel", { params: { path: { job_id: id } } });
      await answerOf(request).catch((refusal: unknown) => refusals.push(refusal));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  return refusals;
}

function NoJobs({ some }: { some: boolean }) {
  const submits = useRole("submitter");
  if (some) {
    return (
      <Empty title="No jobs match these filters">
        <p>Remove a filter to see more.</p>
        <div>
          <Button onClick={clearFilters}>Clear all filters</Button>
        </div>
      </Empty>
    );
  }
  if (!submits) return <Empty title="No jobs">This account may not submit jobs. An administrator can change that.</Empty>;
  return (
    <Empty title="No jobs yet">
      <p>Run a script on the pool, from here or from a terminal:</p>
      <Code label="Command to submit a script" text="pool submit hello.py --wait" />
      <div>
        <ButtonLink href="/submit" look="primary">
          Submit a job
        </ButtonLink>
      </div>
    </Empty>
  );
}
