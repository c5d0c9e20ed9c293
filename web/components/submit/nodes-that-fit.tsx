"use client";
import { Badge } from "@/components/ui/badge";
import { Link } from "@/components/ui/link";
import type { Schemas } from "@/lib/api/client";
import { pluralize } from "@/lib/format";
import { nodeHref } from "@/lib/links";

type Preview = Schemas["PreviewView"];
type Verdict = Schemas["NodeVerdictView"];

const SHOWN = 200;

export function NodesThatFit({ preview: { why, hosts } }: { preview: Preview }) {
  const gates = why.gates.filter((gate) => gate.failing > 0);
  return (
    <div className="grid gap-3 border-line border-t pt-4">
      <p className="text-sm">{why.sentence}</p>
      {why.changes.length > 0 && (
        <ul className="grid gap-1 text-sm">
          {why.changes.map((change) => (
            <li key={change.change} className="flex justify-between gap-3">
              <span>{change.change}</span>
              <span className="num whitespace-nowrap text-muted">+{pluralize(change.nodes, "node")}</span>
            </li>
          ))}
        </ul>
      )}
      {gates.length > 0 && (
        <details className="text-sm">
          <summary className="text-muted hover:text-ink">Why other nodes are excluded</summary>
          <ul className="mt-2 grid gap-1">
            {gates.map((gate) => (
              <li key={gate.gate} className="flex justify-between gap-3">
                <span className="min-w-0 break-words">
                  {gate.gate}: <span className="text-muted">{gate.need}</span>
                </span>
                <span className="num whitespace-nowrap text-muted">{pluralize(gate.failing, "node")}</span>
              </li>
            ))}
          </ul>
        </details>
      )}
      {hosts.length > 0 && (
        <details className="text-sm">
          <summary className="text-muted hover:text-ink">
            {hosts.length >= SHOWN ? `The first ${SHOWN} nodes` : "All nodes"}
          </summary>
          <ul tabIndex={0} aria-label="Nodes" className="mt-2 grid max-h-64 gap-1.5 overflow-y-auto">
            {hosts.map((host) => (
              <Host key={host.node_id} host={host} />
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}

function Host({ host }: { host: Verdict }) {
  return (
    <li className="flex items-start justify-between gap-3">
      <Link href={nodeHref(host.node_id)} className="link min-w-0 truncate">
        {host.name}
      </Link>
      {host.ok ? (
        <Badge tone="good">fits</Badge>
      ) : (
        <span className="min-w-0 break-words text-right text-muted">
          {host.busy ? "busy: " : ""}
          {host.failed.join(", ")}
        </span>
      )}
    </li>
  );
}
