"use client";
// Which job comes after which: boxes that link to the jobs, and curves between them.
import { useMemo } from "react";
import { StateBadge } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { Link } from "@/components/ui/link";
import { Empty, Notice, QueryView, Skeleton } from "@/components/ui/states";
import { $api } from "@/lib/api/client";
import { count, pluralize } from "@/lib/format";
import { BOX, type Graph, type GraphJob, layoutOf } from "@/lib/graph-layout";
import { jobHref } from "@/lib/links";

const LIVE_MS = 5000;
const CONDITIONS: Record<string, string> = { failure: "on failure", always: "always" };

function isOpen(graph: Graph): boolean {
  return graph.jobs.some((job) => job.state === "queued" || job.state === "leased" || job.state === "running");
}

export function JobGraph({ jobId }: { jobId: string }) {
  const query = $api.useQuery(
    "get",
    "/jobs/{job_id}/graph",
    { params: { path: { job_id: jobId } } },
    { refetchInterval: ({ state }) => (state.data && !isOpen(state.data) ? false : LIVE_MS) },
  );
  return (
    <Card>
      <QueryView query={query} skeleton={<Skeleton className="h-24" />}>
        {(graph) =>
          graph.edges.length > 0 ? (
            <Picture graph={graph} current={jobId} />
          ) : (
            <Empty title="No other jobs">No job comes before or after this one.</Empty>
          )
        }
      </QueryView>
    </Card>
  );
}

/** Nothing, if no job of the group comes after another. */
export function GroupGraph({ groupId }: { groupId: string }) {
  const { data } = $api.useQuery("get", "/groups/{group_id}/graph", { params: { path: { group_id: groupId } } });
  if (!data || data.edges.length === 0) return null;
  return (
    <Card title="Order of the jobs">
      <Picture graph={data} />
    </Card>
  );
}

function Picture({ graph, current }: { graph: Graph; current?: string }) {
  const { placed, edges, width, height } = useMemo(() => layoutOf(graph), [graph]);
  return (
    <div className="grid grid-cols-1 gap-3">
      {graph.more && <Notice>{`Only the first ${count(graph.jobs.length)} of the connected jobs are shown.`}</Notice>}
      <div className="max-h-[36rem] overflow-auto">
        <div className="relative" style={{ width, height }}>
          <svg viewBox={`0 0 ${width} ${height}`} aria-hidden="true" className="absolute inset-0 size-full">
            <marker id="arrow" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path d="M0 0L8 4L0 8Z" className="fill-line-strong" />
            </marker>
            {edges.map(({ key, path, dashed }) => (
              <path
                key={key}
                d={path}
                fill="none"
                strokeWidth="1.5"
                strokeDasharray={dashed ? "5 4" : undefined}
                markerEnd="url(#arrow)"
                className="stroke-line-strong"
              />
            ))}
          </svg>
          <ul aria-label={`${pluralize(graph.jobs.length, "job")}, each after those that it waits for`}>
            {placed.map(({ job, x, y }) => (
              <li key={job.id} className="absolute" style={{ left: x, top: y, width: BOX.width, height: BOX.height }}>
                <Box job={job} isCurrent={job.id === current} />
              </li>
            ))}
          </ul>
        </div>
      </div>
    </div>
  );
}

function Box({ job, isCurrent }: { job: GraphJob; isCurrent: boolean }) {
  const condition = CONDITIONS[job.when ?? "success"];
  return (
    <Link
      href={jobHref(job.id)}
      aria-current={isCurrent ? "page" : undefined}
      className={classes(
        "flex size-full flex-col justify-center gap-0.5 rounded-control border bg-surface px-2.5 text-ink no-underline hover:bg-hover",
        isCurrent ? "border-2 border-accent" : "border-line-strong",
      )}
    >
      <bdi className="truncate font-medium text-sm">{job.key ? `${job.name} ${job.key}` : job.name}</bdi>
      <span className="flex items-center gap-2 overflow-hidden text-xs">
        <StateBadge state={job.reason === "skipped" ? "skipped" : job.state} />
        {condition && <span className="truncate text-muted">{condition}</span>}
      </span>
    </Link>
  );
}
