"use client";
import { DownloadLink } from "@/components/ui/button";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { QueryView, Skeleton } from "@/components/ui/states";
import { Table } from "@/components/ui/table";
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

/** The charge, or what it would be if the job ended now. */
export function CostSoFar({ job }: { job: JobDetail }) {
  const { data } = useCost(job);
  if (job.charge != null) {
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
      {data?.so_far != null && (
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
      <Card title={isOver(job) ? "Cost" : "Expected cost"}>
        <QueryView query={query}>{(cost) => <Bill cost={cost} />}</QueryView>
      </Card>
      {job.state === "succeeded" && <Receipt job={job} />}
    </div>
  );
}

function Bill({ cost }: { cost: Cost }) {
  return (
    <div className="grid grid-cols-1 gap-4">
      <p className="max-w-prose break-words">
        <bdi>{cost.sentence}</bdi>
      </p>
      <Table
        label="Calculation"
        className="max-w-3xl"
        rows={cost.lines ?? []}
        rowKey={(line) => line.label}
        columns={[
          { className: "whitespace-nowrap text-muted", cell: (line) => line.label },
          { cell: (line) => <bdi>{line.text}</bdi> },
          { right: true, cell: (line) => line.amount != null && <Money micro={line.amount} exact /> },
        ]}
      />
      <Sums cost={cost} />
    </div>
  );
}

function Sums({ cost }: { cost: Cost }) {
  const sums: [string, number | null | undefined][] = [
    ["If it succeeds now", cost.so_far],
    ["All runs", (cost.runs ?? 1) > 1 ? cost.total : null],
    ["On hold", cost.hold],
    ["Refunded", cost.refund],
    ["At most per hour", cost.settled ? null : cost.max_price],
  ];
  return (
    <Facts columns={4}>
      {sums.map(
        ([name, micro]) =>
          micro != null && (
            <Fact key={name} name={name}>
              <Money micro={micro} unit exact />
            </Fact>
          ),
      )}
    </Facts>
  );
}

/** Downloaded from the hub itself: the signature holds for its exact bytes. */
function Receipt({ job }: { job: JobDetail }) {
  const query = $api.useQuery("get", "/jobs/{job_id}/receipt", { params: { path: { job_id: job.id } } }, { staleTime: "static" });
  const name = `receipt-${job.id}.json`;
  return (
    <Card
      title="Receipt"
      note="Signed by the hub: what was agreed, done and paid. Anyone can verify it offline."
      aside={
        query.data && (
          <DownloadLink href={hubUrl(["jobs", job.id, "receipt"])} download={name}>
            Download
          </DownloadLink>
        )
      }
    >
      <QueryView query={query} skeleton={<Skeleton className="h-11" />}>
        {() => <Code label="Command to check the receipt" text={`pool verify ${name}`} />}
      </QueryView>
    </Card>
  );
}
