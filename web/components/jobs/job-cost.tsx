"use client";
import { Download } from "lucide-react";
import { Card } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { QueryView, Skeleton } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import { $api, hubUrl, type Schemas } from "@/lib/api/client";
import { isOver, type JobDetail } from "./job-page";

type Cost = Schemas["CostView"];

const LIVE_MS = 3000;

function useCost(job: JobDetail) {
  return $api.useQuery(
    "get",
    "/jobs/{job_id}/cost",
    { params: { path: { job_id: job.id } } },
    { refetchInterval: job.state === "running" ? LIVE_MS : false },
  );
}

/** One amount for the summary: what it cost, or would cost if it ended now. */
export function CostSoFar({ job }: { job: JobDetail }) {
  const { data } = useCost(job);
  if (job.charge !== null && job.charge !== undefined) {
    return (
      <>
        <Money micro={job.charge} unit />
        {(job.hold ?? 0) > 0 && (
          <span className="text-muted">
            {" "}
            of <Money micro={job.hold ?? 0} /> on hold
          </span>
        )}
      </>
    );
  }
  return (
    <>
      {data?.so_far !== null && data?.so_far !== undefined && (
        <>
          <Money micro={data.so_far} unit /> <span className="text-muted">if it succeeds now; </span>
        </>
      )}
      <span className="text-muted">
        at most <Money micro={job.hold ?? 0} unit />
      </span>
    </>
  );
}

export function JobCost({ job }: { job: JobDetail }) {
  const query = useCost(job);
  return (
    <div className="grid grid-cols-1 gap-4">
      <Card title={isOver(job) ? "What it cost" : "What it may cost"}>
        <QueryView query={query}>{(cost) => <Bill cost={cost} />}</QueryView>
      </Card>
      {job.state === "succeeded" && <Receipt job={job} />}
    </div>
  );
}

function Bill({ cost }: { cost: Cost }) {
  const lines = cost.lines ?? [];
  return (
    <div className="grid grid-cols-1 gap-4">
      <p className="max-w-prose break-words">
        <bdi>{cost.sentence}</bdi>
      </p>
      {lines.length > 0 && (
        <div role="region" aria-label="The bill" tabIndex={0} className="overflow-x-auto">
          <table className="w-full max-w-3xl text-left">
            <tbody>
              {lines.map((line) => (
                <tr key={line.label} className="border-line/70 border-t first:border-t-0">
                  <th scope="row" className="whitespace-nowrap py-1.5 pr-6 font-normal text-muted">
                    {line.label}
                  </th>
                  <td className="py-1.5 pr-6">
                    <bdi>{line.text}</bdi>
                  </td>
                  <td className="py-1.5 text-right">
                    {line.amount !== null && line.amount !== undefined && <Money micro={line.amount} exact />}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <Sums cost={cost} />
    </div>
  );
}

function Sums({ cost }: { cost: Cost }) {
  const sums: [string, number | null | undefined][] = [
    ["If it succeeds now", cost.so_far],
    ["All runs together", (cost.runs ?? 1) > 1 ? cost.total : null],
    ["On hold", cost.hold],
    ["Refunded", cost.refund],
    ["At most per hour", cost.settled ? null : cost.max_price],
  ];
  return (
    <dl className="flex flex-wrap gap-x-8 gap-y-2">
      {sums.map(
        ([name, micro]) =>
          micro !== null &&
          micro !== undefined && (
            <div key={name}>
              <dt className="text-muted text-sm">{name}</dt>
              <dd className="font-medium">
                <Money micro={micro} unit exact />
              </dd>
            </div>
          ),
      )}
    </dl>
  );
}

/** Its bytes come as the hub signed them: nothing in between may write them anew. */
function Receipt({ job }: { job: JobDetail }) {
  const query = $api.useQuery("get", "/jobs/{job_id}/receipt", { params: { path: { job_id: job.id } } }, { staleTime: "static" });
  const name = `receipt-${job.id}.json`;
  return (
    <Card
      title="Receipt"
      note="Signed by the hub: what was agreed, done and paid. Anyone can verify it offline."
      aside={
        query.data && (
          <a
            href={hubUrl(["jobs", job.id, "receipt"])}
            download={name}
            className="inline-flex min-h-10 items-center gap-2 rounded-control border border-line-strong/60 px-4 font-medium text-ink no-underline hover:bg-hover"
          >
            <Download size={16} aria-hidden="true" /> Download
          </a>
        )
      }
    >
      <QueryView query={query} skeleton={<Skeleton className="h-11" />}>
        {() => <Code label="Command to check the receipt" text={`pool verify ${name}`} />}
      </QueryView>
    </Card>
  );
}
