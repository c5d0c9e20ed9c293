"use client";
import { StateBadge } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import { Link } from "@/components/ui/link";
import { Progress } from "@/components/ui/progress";
import { Empty, QueryView, Skeleton } from "@/components/ui/states";
import { Money, Took } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count, megabytes, percent, pluralize, shortId } from "@/lib/format";
import { jobHref } from "@/lib/links";
import type { NodeView } from "./node-cells";

type Attempt = Schemas["NodeAttempt"];

const EVERY_MS = 3000; // about as often as nodes report usage
const SHOWN = 12;

export function NodeWork({ node }: { node: NodeView }) {
  const query = $api.useQuery(
    "get",
    "/nodes/{node_id}/work",
    { params: { path: { node_id: node.id } } },
    { refetchInterval: EVERY_MS },
  );
  const earns = query.data?.earns ?? 0;
  return (
    <Card
      title="Running now"
      aside={
        earns > 0 && (
          <span className="text-muted">
            <Money micro={earns} unit /> an hour
          </span>
        )
      }
    >
      <QueryView query={query} skeleton={<Skeleton className="h-24" />}>
        {(work) =>
          work.attempts.length === 0 ? (
            <Empty title="No jobs are running">
              <p>“Work for this node” explains why.</p>
            </Empty>
          ) : (
            <>
              <ul className="divide-y divide-line">
                {work.attempts.slice(0, SHOWN).map((attempt) => (
                  <AttemptRow key={attempt.attempt_id} attempt={attempt} />
                ))}
              </ul>
              {work.running + work.leased > SHOWN && (
                <p className="mt-2 text-muted text-sm">and {count(work.running + work.leased - SHOWN)} more.</p>
              )}
            </>
          )
        }
      </QueryView>
    </Card>
  );
}

function AttemptRow({ attempt }: { attempt: Attempt }) {
  const name = attempt.job_name || `${attempt.kind} ${shortId(attempt.job_id)}`;
  return (
    <li className="grid gap-1 py-2.5">
      <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-1">
        <span className="flex min-w-0 items-center gap-2">
          <StateBadge state={attempt.state} />
          {attempt.job_name == null ? (
            <span className="truncate font-medium">{name}</span>
          ) : (
            <Link href={jobHref(attempt.job_id)} className="truncate font-medium text-ink hover:underline">
              {name}
            </Link>
          )}
        </span>
        <span className="text-muted">
          <Took fromMs={attempt.started_at_ms ?? attempt.leased_at_ms} toMs={null} />
        </span>
      </div>
      {attempt.progress != null && <Progress value={attempt.progress} label={`Progress of ${name}`} />}
      <div className="flex flex-wrap gap-x-4 text-muted text-sm">
        <span>{resourceText(attempt)}</span>
        {attempt.cpu_ids && attempt.cpu_ids.length > 0 && <span>on CPU {attempt.cpu_ids.join(", ")}</span>}
        {attempt.cpu_percent != null && (
          <span className="num">
            uses {percent(attempt.cpu_percent / 100)} of a core, {megabytes(attempt.rss_mb ?? 0)}
          </span>
        )}
        <span>
          {attempt.own ? (
            "the owner's job, not paid"
          ) : (
            <>
              earns <Money micro={attempt.earns} /> an hour, <Money micro={attempt.earned} /> so far
            </>
          )}
        </span>
      </div>
    </li>
  );
}

function resourceText({ cores, ram_mb, gpus }: Attempt): string {
  const parts = [pluralize(cores, "core"), megabytes(ram_mb)];
  if (gpus > 0) parts.push(pluralize(gpus, "GPU"));
  return parts.join(", ");
}
