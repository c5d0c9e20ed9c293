"use client";
import { StateBadge } from "@/components/ui/badge";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Link } from "@/components/ui/link";
import { Empty } from "@/components/ui/states";
import { Ago, Money, Took } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { bytes, duration, megabytes } from "@/lib/format";
import { humanize } from "@/lib/labels";
import { nodeHref } from "@/lib/links";
import type { JobDetail } from "./job-page";
import { SEALED } from "./log-lines";

type Attempt = Schemas["AttemptView"];

/** The newest first. */
export function JobAttempts({ job }: { job: JobDetail }) {
  const tries = (job.tries ?? []).toReversed();
  if (tries.length === 0) {
    return (
      <Card>
        <Empty title="No attempts yet">The first attempt begins when a node takes the job.</Empty>
      </Card>
    );
  }
  return (
    <div className="grid gap-4 2xl:grid-cols-2">
      {tries.map((attempt) => (
        <One key={attempt.id} attempt={attempt} jobError={job.error ?? null} />
      ))}
    </div>
  );
}

function One({ attempt, jobError }: { attempt: Attempt; jobError: string | null }) {
  const { usage } = attempt;
  return (
    <Card
      title={
        <>
          Attempt {attempt.number} on{" "}
          <Link href={nodeHref(attempt.node_id)} className="link">
            <bdi>{attempt.node_name}</bdi>
          </Link>
        </>
      }
      note={
        <>
          <bdi>{humanize(attempt.reason)}</bdi>
          {attempt.resumed != null && ` · resumed from the checkpoint of attempt ${attempt.resumed}`}
        </>
      }
      aside={<StateBadge state={attempt.state} />}
    >
      <Facts columns={4}>
        <Fact name="Placed">
          <Ago ms={attempt.leased_at_ms} />
        </Fact>
        <Fact name="Setup · Ran">
          <Took fromMs={attempt.leased_at_ms} toMs={attempt.started_at_ms ?? attempt.finished_at_ms} />
          <span className="text-muted"> · </span>
          <Took fromMs={attempt.started_at_ms} toMs={attempt.finished_at_ms} />
        </Fact>
        <Fact name="Exit code">{attempt.exit_code ?? "–"}</Fact>
        <Fact name="Price">
          <Money micro={attempt.price ?? 0} unit /> <span className="text-muted">per hour</span>
        </Fact>
        <Fact name="Billed">{attempt.billed_ms == null ? "–" : duration(attempt.billed_ms)}</Fact>
        <Fact name="Charge">{attempt.charge == null ? "–" : <Money micro={attempt.charge} unit />}</Fact>
        {usage && (
          <>
            <Fact name="CPU time">{duration(usage.cpu_ms ?? 0)}</Fact>
            <Fact name="Peak memory">{megabytes(usage.peak_rss_mb ?? 0)}</Fact>
            {(usage.gpu_ms ?? 0) > 0 && <Fact name="GPU time">{duration(usage.gpu_ms ?? 0)}</Fact>}
            {((usage.net_in_bytes ?? 0) > 0 || (usage.net_out_bytes ?? 0) > 0) && (
              <Fact name="Network">
                {bytes(usage.net_in_bytes ?? 0)} in, {bytes(usage.net_out_bytes ?? 0)} out
              </Fact>
            )}
          </>
        )}
      </Facts>
      {attempt.error && attempt.error !== jobError && !attempt.error.startsWith(SEALED) && (
        <div className="mt-4">
          <Code label={`Error of attempt ${attempt.number}`} text={attempt.error} wrap />
        </div>
      )}
    </Card>
  );
}
