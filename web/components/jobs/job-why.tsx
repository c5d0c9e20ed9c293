"use client";
import { Card } from "@/components/ui/card";
import { Failure, Notice, Skeleton } from "@/components/ui/states";
import { $api, type Schemas } from "@/lib/api/client";
import { count, pluralize } from "@/lib/format";

type Why = Schemas["WhyView"];

/** Why it waits, or ended without a result: which conditions fail, and the smallest change that would help. */
export function JobWhy({ jobId, state }: { jobId: string; state: string }) {
  const query = $api.useQuery(
    "get",
    "/jobs/{job_id}/why",
    { params: { path: { job_id: jobId } } },
    { refetchInterval: state === "queued" ? 5000 : false },
  );
  const title = state === "queued" ? "Why it waits" : "Why it ended";
  if (query.error && !query.data) return <Failure error={query.error} />;
  // How it ended stands above already; more only where there is more to say.
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
      <summary className="font-medium">
        {gates.length === 1 ? "One condition excludes nodes" : `${count(gates.length)} conditions exclude nodes`}
      </summary>
      <div role="region" aria-label="Conditions" tabIndex={0} className="mt-2 overflow-x-auto">
        <table className="w-full min-w-120 text-left">
          <thead className="text-muted text-sm">
            <tr>
              <th scope="col" className="py-1 pr-4 font-normal">
                Requirement
              </th>
              <th scope="col" className="px-4 py-1 text-right font-normal">
                Fail now, of {count(nodes)}
              </th>
              <th scope="col" className="px-4 py-1 text-right font-normal">
                Fail even when idle
              </th>
              <th scope="col" className="py-1 pl-4 text-right font-normal">
                Would fit without it
              </th>
            </tr>
          </thead>
          <tbody>
            {gates.map((gate) => (
              <tr key={gate.gate} className="border-line/70 border-t">
                <td className="py-1.5 pr-4">
                  <bdi>{gate.need}</bdi>
                </td>
                <td className="px-4 py-1.5 text-right">{count(gate.failing)}</td>
                <td className="px-4 py-1.5 text-right">{count(gate.failing_even_if_idle)}</td>
                <td className="py-1.5 pl-4 text-right">{count(gate.passing_without)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
