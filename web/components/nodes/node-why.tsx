"use client";
import { Card } from "@/components/ui/card";
import { QueryView, Skeleton } from "@/components/ui/states";
import { $api } from "@/lib/api/client";
import { count } from "@/lib/format";
import type { NodeView } from "./node-cells";

const EVERY_MS = 5000; // the stream of news does not report other people's jobs
const SHOWN = 8;

export function NodeWhy({ node }: { node: NodeView }) {
  const query = $api.useQuery(
    "get",
    "/nodes/{node_id}/why",
    { params: { path: { node_id: node.id } } },
    { refetchInterval: EVERY_MS },
  );
  return (
    <Card title="Work for this node">
      <QueryView query={query} skeleton={<Skeleton className="h-24" />}>
        {(why) => (
          <div className="grid gap-3">
            <p>{why.sentence}</p>
            {why.rows.length > 0 && (
              <ul className="divide-y divide-line">
                {why.rows.slice(0, SHOWN).map((row, at) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: two kinds of jobs may read the same
                  <li key={at} className="grid gap-0.5 py-2.5">
                    <span className="flex flex-wrap justify-between gap-x-4 font-medium">
                      <span>{row.shape}</span>
                      <span className="num font-normal text-muted">{count(row.queued)} waiting</span>
                    </span>
                    {row.reason.split("; ").map((reason) => (
                      <span key={reason} className="text-muted">
                        {reason}
                      </span>
                    ))}
                  </li>
                ))}
              </ul>
            )}
            {why.rows.length > SHOWN && (
              <p className="text-muted text-sm">and {count(why.rows.length - SHOWN)} more kinds of jobs.</p>
            )}
          </div>
        )}
      </QueryView>
    </Card>
  );
}
