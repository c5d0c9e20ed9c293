"use client";
import type { Route } from "next";
import { StateBadge } from "@/components/ui/badge";
import type { Column } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Progress } from "@/components/ui/progress";
import { Ago, Money, Took } from "@/components/ui/values";
import { percent, shortId } from "@/lib/format";
import type { Job } from "./job-rows";
import { WhyLine } from "./why-line";

interface ColumnOptions {
  chosen: ReadonlySet<string>;
  toggle: (id: string) => void;
  isAdmin: boolean;
}

export function jobColumns({ chosen, toggle, isAdmin }: ColumnOptions): Column<Job>[] {
  return [
    {
      key: "pick",
      title: "Select",
      hideTitle: true,
      width: "2.75rem",
      cell: (job) => (
        <input
          type="checkbox"
          aria-label={`Select ${job.name}`}
          className="size-4 accent-accent align-middle"
          checked={chosen.has(job.id) && job.can_cancel}
          disabled={!job.can_cancel}
          onChange={() => toggle(job.id)}
        />
      ),
    },
    { key: "name", title: "Job", width: "minmax(9rem,5fr)", cell: (job) => <Name job={job} /> },
    { key: "state", title: "State", width: "8.5rem", cell: (job) => <State job={job} /> },
    ...(isAdmin
      ? [
          {
            key: "who",
            title: "Owner",
            width: "minmax(6rem,1fr)",
            from: "xl" as const,
            cell: (job: Job) => job.account_name ?? "–",
          },
        ]
      : []),
    { key: "where", title: "Node", width: "minmax(8rem,1.2fr)", from: "md", cell: (job) => <Where job={job} /> },
    { key: "took", title: "Ran", width: "7rem", from: "lg", right: true, cell: (job) => <Ran job={job} /> },
    { key: "cost", title: "Cost", width: "7rem", from: "sm", right: true, cell: (job) => <Cost job={job} /> },
    { key: "when", title: "Submitted", width: "8rem", from: "md", right: true, cell: (job) => <Ago ms={job.created_at_ms} /> },
  ];
}

function Name({ job }: { job: Job }) {
  return (
    <div className="min-w-0">
      <div className="flex min-w-0 items-baseline gap-2">
        <Link
          href={`/jobs?id=${encodeURIComponent(job.id)}` as Route}
          className="truncate font-medium text-ink no-underline hover:underline"
        >
          <bdi>{job.name}</bdi>
        </Link>
        {job.key && <bdi className="truncate text-muted text-sm">{job.key}</bdi>}
        <span className="hidden shrink-0 text-muted text-sm sm:inline">{job.kind}</span>
      </div>
      <WhyLine job={job} />
    </div>
  );
}

/** While it runs and tells how far it is, that is shown, too. */
function State({ job }: { job: Job }) {
  const far = job.finished_at_ms == null ? job.progress : null;
  return (
    <>
      <StateBadge state={job.state} title={job.status} />
      {far !== null && far !== undefined && (
        <div className="mt-1 flex w-28 items-center gap-2">
          <Progress value={far} label={`Progress of ${job.name}`} />
          <span className="num shrink-0 text-muted text-sm leading-none">{percent(far)}</span>
        </div>
      )}
    </>
  );
}

function Where({ job }: { job: Job }) {
  if (!job.node_id) return <span className="text-muted">–</span>;
  return (
    <Link href={`/nodes?id=${encodeURIComponent(job.node_id)}` as Route} className="link">
      <bdi>{job.node_name ?? shortId(job.node_id)}</bdi>
    </Link>
  );
}

function Ran({ job }: { job: Job }) {
  const over = job.finished_at_ms ?? null;
  if (job.started_at_ms == null || (over === null && job.state !== "running")) return <span className="text-muted">–</span>;
  return <Took fromMs={job.started_at_ms} toMs={over} />;
}

/** What it cost; until that is known, what is set aside for it. */
function Cost({ job }: { job: Job }) {
  if (job.charge !== null && job.charge !== undefined) return <Money micro={job.charge} />;
  if (!job.hold) return <span className="text-muted">–</span>;
  return (
    <span className="text-muted" title="On hold: the most that it can cost">
      ≤ <Money micro={job.hold} />
    </span>
  );
}
