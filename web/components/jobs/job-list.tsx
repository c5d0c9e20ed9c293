"use client";
import { Ban, Plus } from "lucide-react";
import type { Route } from "next";
import { useRouter } from "next/navigation";
import { useMemo, useState } from "react";
import { Button, ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { DataTable } from "@/components/ui/data-table";
import { Confirm } from "@/components/ui/dialog";
import { Page } from "@/components/ui/page";
import { Empty, Failure, SkeletonRows } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { client } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { count, pluralize } from "@/lib/format";
import { useAccount, useRole } from "@/lib/session";
import { setParams } from "@/lib/use-params";
import { jobColumns } from "./job-columns";
import { JobFilterBar } from "./job-filters";
import type { Job } from "./job-rows";
import { FILTERS, useJobFilters } from "./use-job-filters";
import { useJobRows } from "./use-job-rows";

const AT_ONCE = 6; // as many questions as a browser sends to one hub

export function JobList() {
  const { query, states, some } = useJobFilters();
  const list = useJobRows(query);
  const router = useRouter();
  const account = useAccount();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const isAdmin = account.roles.includes("admin") && query.all !== false;
  const columns = useMemo(() => {
    const toggle = (id: string) => setChosen((before) => (before.has(id) ? without(before, id) : new Set(before).add(id)));
    return jobColumns({ chosen, toggle, isAdmin });
  }, [chosen, isAdmin]);
  return (
    <Page
      title="Jobs"
      actions={
        <ButtonLink href="/submit" look="primary" className="lg:hidden">
          <Plus size={17} aria-hidden="true" /> Submit a job
        </ButtonLink>
      }
    >
      <JobFilterBar states={states} some={some} />
      <Card flush>
        <Selection rows={list.rows} chosen={chosen} choose={setChosen} refresh={list.refresh} more={list.more.has} />
        {!list.loaded ? (
          list.error ? (
            <Failure error={list.error} retry={list.refresh} />
          ) : (
            <SkeletonRows rows={8} />
          )
        ) : (
          <div className={list.stale ? "opacity-50" : undefined} aria-busy={list.stale}>
            <DataTable
              label="Jobs"
              columns={columns}
              rows={list.rows}
              rowKey={(job) => job.id}
              rowHeight={58}
              height="max(24rem, calc(100dvh - 18rem))"
              onRow={(job) => router.push(`/jobs?id=${encodeURIComponent(job.id)}` as Route)}
              more={list.more}
              empty={<NoJobs some={some} />}
            />
          </div>
        )}
      </Card>
    </Page>
  );
}

function without(set: ReadonlySet<string>, id: string): Set<string> {
  const next = new Set(set);
  next.delete(id);
  return next;
}

interface SelectionProps {
  rows: Job[];
  chosen: ReadonlySet<string>;
  choose: (ids: ReadonlySet<string>) => void;
  refresh: () => void;
  more: boolean;
}

/** The line above the table: how many there are, and what can be done with those that were ticked. */
function Selection({ rows, chosen, choose, refresh, more }: SelectionProps) {
  const toast = useToast();
  const able = rows.filter((job) => job.can_cancel);
  const picked = able.filter((job) => chosen.has(job.id));
  // Said beside the table: the dialog goes away with the last ticked row, also with one that ended by itself.
  const cancel = async () => {
    const refused = await cancelAll(picked.map((job) => job.id));
    choose(new Set());
    refresh();
    if (refused.length === 0) {
      toast.success(picked.length === 1 ? "Job cancelled." : `${count(picked.length)} jobs cancelled.`);
      return;
    }
    const why = asProblem(refused[0]);
    const detail = `${count(refused.length)} of ${pluralize(picked.length, "job")} not cancelled. ${why.detail}`;
    toast.error({ ...why, detail });
  };
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
              Select none
            </Button>
            <Confirm
              title={picked.length === 1 ? `Cancel ${picked[0]?.name || "this job"}?` : `Cancel ${count(picked.length)} jobs?`}
              action={picked.length === 1 ? "Cancel the job" : `Cancel ${count(picked.length)} jobs`}
              danger
              confirm={cancel}
              trigger={(open) => (
                <Button small look="danger" onClick={open}>
                  <Ban size={15} aria-hidden="true" /> Cancel
                </Button>
              )}
            >
              Running jobs are stopped with everything they started. This cannot be undone, and costs nothing.
            </Confirm>
          </>
        )}
      </div>
    </div>
  );
}

/** One after the other, a few at a time; what the hub refused comes back. */
async function cancelAll(ids: string[]): Promise<unknown[]> {
  const waiting = [...ids];
  const refused: unknown[] = [];
  const work = async () => {
    for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
      try {
        const { error } = await client.POST("/jobs/{job_id}/cancel", { params: { path: { job_id: id } } });
        if (error) refused.push(error);
      } catch (lost) {
        refused.push(lost);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return refused;
}

function NoJobs({ some }: { some: boolean }) {
  const mayFetch = useRole("submitter");
  if (some) {
    return (
      <Empty title="No jobs match these filters">
        <p>Remove a filter to see more.</p>
        <div>
          <Button onClick={() => setParams(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>Clear all filters</Button>
        </div>
      </Empty>
    );
  }
  if (!mayFetch) return <Empty title="No jobs">This account does not submit jobs. An administrator can change that.</Empty>;
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
