"use client";
import { StateBadge } from "@/components/ui/badge";
import type { Column } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Progress } from "@/components/ui/progress";
import { Ago, Money, Took } from "@/components/ui/values";
import { percent, shortId } from "@/lib/format";
import { jobHref, nodeHref } from "@/lib/links";
import type { Job } from "./job-list";
import { WhyLine } from "./why-line";

const OWNER: Column<Job> = {
  key: "owner",
  title: "Owner",
  width: "6rem",
  grow: 1,
  from: "xl",
  cell: (job) => job.account_name ?? "–",
};

interface ColumnOptions {
  chosen: ReadonlySet<string>;
  toggle: (id: string) => void;
  showOwner: boolean;
}

export function jobColumns({ chosen, toggle, showOwner }: ColumnOptions): Column<Job>[] {
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
    { key: "name", title: "Job", width: "9rem", grow: 5, cell: (job) => <Name job={job} /> },
    { key: "state", title: "State", width: "8.5rem", cell: (job) => <State job={job} /> },
    ...(showOwner ? [OWNER] : []),
    { key: "where", title: "Node", width: "8rem", grow: 1.2, from: "md", cell: (job) => <Where job={job} /> },
    { key: "took", title: "Ran", width: "7rem", from: "lg", right: true, cell: (job) => <Ran job={job} /> },
    { key: "cost", title: "Cost", width: "7rem", from: "sm", right: true, cell: (job) => <Cost job={job} /> },
    { key: "when", title: "Submitted", width: "8rem", from: "md", right: true, cell: (job) => <Ago ms={job.created_at_ms} /> },
  ];
}

function Name({ job }: { job: Job }) {
  return (
    <div className="min-w-0">
      <div className="flex min-w-0 items-baseline gap-2">
        <Link href={jobHref(job.id)} className="truncate font-medium text-ink no-underline hover:underline">
          <bdi>{job.name}</bdi>
        </Link>
        {job.key && <bdi className="truncate text-muted text-sm">{job.key}</bdi>}
        <span className="hidden shrink-0 text-muted text-sm sm:inline">{job.kind}</span>
      </div>
      <WhyLine job={job} />
    </div>
  );
}

function State({ job }: { job: Job }) {
  const progress = job.finished_at_ms == null ? job.progress : null;
  return (
    <>
      <StateBadge state={job.state} title={job.status} />
      {progress != null && (
        <div className="mt-1 flex w-28 items-center gap-2">
          <Progress value={progress} label={`Progress of ${job.name}`} />
          <span className="num shrink-0 text-muted text-sm leading-none">{percent(progress)}</span>
        </div>
      )}
    </>
  );
}

function Where({ job }: { job: Job }) {
  if (!job.node_id) return <span className="text-muted">–</span>;
  return (
    <Link href={nodeHref(job.node_id)} className="link">
      <bdi>{job.node_name ?? shortId(job.node_id)}</bdi>
    </Link>
  );
}

function Ran({ job }: { job: Job }) {
  const end = job.finished_at_ms ?? null;
  if (job.started_at_ms == null || (end === null && job.state !== "running")) return <span className="text-muted">–</span>;
  return <Took fromMs={job.started_at_ms} toMs={end} />;
}

/** The charge; until it is known, what is on hold. */
function Cost({ job }: { job: Job }) {
  if (job.charge != null) return <Money micro={job.charge} />;
  if (!job.hold) return <span className="text-muted">–</span>;
  return (
    <span className="text-muted" title="On hold: the maximum cost">
      ≤ <Money micro={job.hold} />
    </span>
  );
}
