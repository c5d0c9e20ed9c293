"use client";
import { Badge, type Tone } from "@/components/ui/badge";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Link } from "@/components/ui/link";
import { Progress } from "@/components/ui/progress";
import { Notice } from "@/components/ui/states";
import { Ago, Id, Money, Took } from "@/components/ui/values";
import { bytes, count, duration, percent, pluralize } from "@/lib/format";
import { groupHref, jobHref, nodeHref } from "@/lib/links";
import { useAccount } from "@/lib/session";
import { CostSoFar } from "./job-cost";
import { isOver, type JobDetail } from "./job-page";
import { SEALED } from "./log-lines";

export function JobSummary({ job }: { job: JobDetail }) {
  const account = useAccount();
  return (
    <Card>
      {!isOver(job) && job.progress != null && (
        <div className="mb-4 flex items-center gap-3">
          <Progress value={job.progress} label="Progress" />
          <span className="num shrink-0 font-medium">{percent(job.progress)}</span>
        </div>
      )}
      <Facts columns={4}>
        <Fact name="Submitted">
          <Ago ms={job.created_at_ms} />
          {job.account_id !== account.id && <span className="text-muted"> by {job.account_name ?? job.account_id}</span>}
        </Fact>
        <Fact name="Waited · Ran">
          <Took fromMs={job.created_at_ms} toMs={job.started_at_ms ?? job.finished_at_ms} />
          <span className="text-muted"> · </span>
          <Took fromMs={job.started_at_ms} toMs={job.finished_at_ms} />
        </Fact>
        <Fact name="Node">
          <Where job={job} />
        </Fact>
        <Fact name={isOver(job) ? "Cost" : "Cost so far"}>
          <CostSoFar job={job} />
        </Fact>
        <Fact name="Verification">
          <Verdict job={job} />
        </Fact>
        {job.exit_code != null && <Fact name="Exit code">{job.exit_code}</Fact>}
        {job.group_id && (
          <Fact name="Group">
            <Link className="link" href={groupHref(job.group_id)}>
              Open
            </Link>
            <span className="text-muted"> · item {count((job.item ?? 0) + 1)}</span>
          </Fact>
        )}
        <Fact name="ID">
          <Id id={job.id} />
        </Fact>
        {job.checkpoint && (
          <Fact name="Checkpoint">
            <Ago ms={job.checkpoint.at_ms} /> <span className="text-muted">by attempt {job.checkpoint.attempt},</span>{" "}
            {job.checkpoint.progress != null && `${percent(job.checkpoint.progress)}, `}
            {pluralize(job.checkpoint.files, "file")}, {bytes(job.checkpoint.size)}; {duration(job.checkpoint.covered_ms)} of the
            time limit used
          </Fact>
        )}
        {(job.pinned || (job.moves ?? 0) > 0) && (
          <Fact name="Moves">
            {count(job.moves ?? 0)} {job.pinned && <bdi className="text-muted">to {job.pinned}</bdi>}
          </Fact>
        )}
        {(job.after ?? []).length > 0 && (
          <Fact name="Comes after">
            {(job.after ?? []).slice(0, 20).map((id) => (
              <Link key={id} className="link mr-2 font-mono text-sm" href={jobHref(id)}>
                …{id.slice(-6)}
              </Link>
            ))}
            {(job.after ?? []).length > 20 && `and ${count((job.after ?? []).length - 20)} more`}
          </Fact>
        )}
      </Facts>
    </Card>
  );
}

function Where({ job }: { job: JobDetail }) {
  if (!job.node_id) return <span className="text-muted">Not placed yet</span>;
  return (
    <>
      <Link href={nodeHref(job.node_id)} className="link">
        <bdi>{job.node_name ?? job.node_id}</bdi>
      </Link>
      {(job.attempts ?? 0) > 1 && <span className="text-muted"> · {pluralize(job.attempts ?? 0, "attempt")}</span>}
    </>
  );
}

/** The verdicts of docs/verification.md. */
const VERDICTS: Record<string, [Tone, string, string]> = {
  unchecked: ["neutral", "not verified", "only samples are"],
  own: ["neutral", "own node", "your own results are not verified"],
  confirmed: ["good", "confirmed", "nodes of several owners agree"],
  alone: ["warn", "unconfirmed", "no other node could run it in time; payment is held until one does"],
  varies: ["warn", "not reproducible", "every run gave a different result; this is the first"],
  refuted: ["bad", "wrong", "nodes of two other owners agree on a different result"],
};

function Verdict({ job }: { job: JobDetail }) {
  if (job.verify === "none") return <span className="text-muted">not requested</span>;
  const method = <span className="text-muted text-sm">({job.verify})</span>;
  if (!job.verdict)
    return (
      <span className="text-muted">
        {isOver(job) ? "–" : "pending"} {method}
      </span>
    );
  const [tone, label, meaning] = VERDICTS[job.verdict] ?? ["neutral", job.verdict, ""];
  return (
    <>
      <Badge tone={tone}>{label}</Badge> <span className="text-muted text-sm">{meaning}</span> {method}
    </>
  );
}

/** Why the job failed: mostly a traceback. */
export function JobError({ job }: { job: JobDetail }) {
  return (
    <>
      {job.verdict === "refuted" && (
        <Notice tone="bad">
          The result was later proven wrong.{" "}
          {job.taken_back ? (
            <>
              <Money micro={job.taken_back} unit /> was refunded.
            </>
          ) : (
            "Nothing was refunded."
          )}{" "}
          The corrected result is in the tab “Results and files”.
        </Notice>
      )}
      {job.error &&
        (job.error.startsWith(SEALED) ? (
          <Notice>
            The error is sealed. On a machine that has your key: <code>pool jobs show {job.id}</code>
          </Notice>
        ) : (
          <Code label="Error of the job" text={job.error} wrap />
        ))}
    </>
  );
}
