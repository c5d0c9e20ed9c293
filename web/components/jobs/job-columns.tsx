"use client";
import type { Route } from "next";
import Link from "next/link";
import { StateBadge } from "@/components/ui/badge";
import type { Column } from "@/components/ui/data-table";
import { Progress } from "@/components/ui/progress";
import { Ago, Money, Took } from "@/components/ui/values";
import { percent, shortId } from "@/lib/format";
import type { Job } from "./use-job-rows";
import { WhyLine } from "./why-line";

interface Wishes {
  chosen: ReadonlySet<string>;
  toggle: (id: string) => void;
  isAdmin: boolean;
}

export function jobColumns({ chosen, toggle, isAdmin }: Wishes): Column<Job>[] {
  return [
    {
      key: "pick",
      title: "",
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
    { key: "name", title: "Job", width: "minmax(9rem,3fr)", cell: (job) => <Name job={job} /> },
    { key: "state", title: "State", width: "8rem", cell: (job) => <StateBadge state={job.state} title={job.status} /> },
    { key: "progress", title: "Progress", width: "8rem", from: "lg", cell: (job) => <HowFar job={job} /> },
    ...(isAdmin
      ? [
          {
            key: "who",
            title: "Whose",
            width: "minmax(6rem,1fr)",
            from: "xl" as const,
            cell: (job: Job) => job.account_name ?? "–",
          },
        ]
      : []),
    { key: "where", title: "Where", width: "minmax(6rem,1fr)", from: "md", cell: (job) => <Where job={job} /> },
    { key: "took", title: "Ran", width: "6.5rem", from: "lg", right: true, cell: (job) => <Ran job={job} /> },
    { key: "cost", title: "Cost", width: "7rem", from: "sm", right: true, cell: (job) => <Cost job={job} /> },
    { key: "when", title: "Submitted", width: "7rem", from: "md", right: true, cell: (job) => <Ago ms={job.created_at_ms} /> },
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

function HowFar({ job }: { job: Job }) {
  if (job.progress === null || job.progress === undefined) return <span className="text-muted">–</span>;
  return (
    <div className="flex w-28 items-center gap-2">
      <Progress value={job.progress} label={`Progress of ${job.name}`} />
      <span className="num w-10 shrink-0 text-right text-sm">{percent(job.progress)}</span>
    </div>
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
    <span className="text-muted" title="Set aside: the most that it can cost">
      ≤ <Money micro={job.hold} />
    </span>
  );
}
