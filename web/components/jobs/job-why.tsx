"use client";
import { Card } from "@/components/ui/card";
import { Failure, Notice, Skeleton } from "@/components/ui/states";
import { Table } from "@/components/ui/table";
import { $api, type Schemas } from "@/lib/api/client";
import { count, pluralize } from "@/lib/format";

type Why = Schemas["WhyView"];

export function JobWhy({ jobId, state }: { jobId: string; state: string }) {
  const query = $api.useQuery(
    "get",
    "/jobs/{job_id}/why",
    { params: { path: { job_id: jobId } } },
    { refetchInterval: state === "queued" ? 5000 : false },
  );
  const title = state === "queued" ? "Why it waits" : "Why it ended";
  if (query.error && !query.data) return <Failure error={query.error} />;
  // The page's heading says already how it ended.
  if (state !== "queued" && !query.data?.gates?.length && !query.data?.changes?.length) return null;
  return <Card title={title}>{query.data ? <Explained why={query.data} /> : <Skeleton className="h-6 w-2/3" />}</Card>;
}

function Explained({ why }: { why: Why }) {
  const gates = (why.gates ?? []).filter((gate) => gate.failing > 0);
  const changes = why.changes ?? [];
  const ahead = why.ahead ?? 0;
  return (
    <div className="grid grid-cols-1 gap-4">
      {why.unsatisfiable ? (
        <Notice tone="warn">{why.sentence}</Notice>
      ) : (
        <p className="break-words">
          <bdi>{why.sentence}</bdi>
          {ahead > 0 && <span className="text-muted"> About {pluralize(ahead, "job is", "jobs are")} ahead of it.</span>}
        </p>
      )}
      {changes.length > 0 && (
        <div>
          <h3>Changes that would let it start now</h3>
          <ul className="mt-1 grid gap-1">
            {changes.map((change) => (
              <li key={change.change} className="flex flex-wrap gap-x-3">
                <bdi>{change.change}</bdi>
                <span className="text-muted">{pluralize(change.nodes, "node")}</span>
              </li>
            ))}
          </ul>
        </div>
      )}
      {gates.length > 0 && <Gates gates={gates} nodes={why.nodes} />}
    </div>
  );
}

function Gates({ gates, nodes }: { gates: NonNullable<Why["gates"]>; nodes: number }) {
  return (
    <details open={gates.length <= 4}>
      <summary className="mb-2 font-medium">
        {gates.length === 1 ? "One condition excludes nodes" : `${count(gates.length)} conditions exclude nodes`}
      </summary>
      <Table
        label="Conditions"
        className="min-w-120"
        rows={gates}
        rowKey={(gate) => gate.gate}
        columns={[
          { title: "Condition", cell: (gate) => <bdi>{gate.need}</bdi> },
          { title: `Nodes that fail now, of ${count(nodes)}`, right: true, cell: (gate) => count(gate.failing) },
          { title: "Fail even when idle", right: true, cell: (gate) => count(gate.failing_even_if_idle) },
          { title: "Would qualify otherwise", right: true, cell: (gate) => count(gate.passing_without) },
        ]}
      />
    </details>
  );
}
