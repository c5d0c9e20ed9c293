"use client";
import { StateBadge } from "@/components/ui/badge";
import { classes } from "@/components/ui/classes";
import { Progress } from "@/components/ui/progress";
import type { Schemas } from "@/lib/api/client";
import { megabytes, percent, pluralize } from "@/lib/format";

export type NodeView = Schemas["NodeView"];

export function NodeState({ node }: { node: NodeView }) {
  return <StateBadge state={node.status} title={node.sentence || undefined} />;
}

/** The tier that counts, and whether it was measured. */
export function NodeTier({ node }: { node: NodeView }) {
  const found = node.hardware;
  const lowered = found?.standing === "lowered";
  return (
    <span title={found?.sentence} className="block min-w-0">
      <span className="block truncate">{node.tier}</span>
      <span className={classes("block truncate text-sm", lowered ? "text-warn" : "text-muted")}>
        {lowered ? `claims ${found.claimed}` : (found?.standing ?? "claimed")}
      </span>
    </span>
  );
}

/** "2 × NVIDIA H100"; empty without GPUs. */
export function gpuText(node: NodeView): string {
  const names = new Map<string, number>();
  for (const gpu of node.profile.gpus ?? []) names.set(gpu.name, (names.get(gpu.name) ?? 0) + 1);
  return [...names].map(([name, many]) => (many > 1 ? `${many} × ${name}` : name)).join(", ");
}

/** "8 cores · 16.4 GB". */
export function coreText(node: NodeView): string {
  const { cores, ram_mb } = node.profile;
  return `${pluralize(cores, "core")} · ${megabytes(ram_mb)}`;
}

export function ScoreBar({ score }: { score: number }) {
  return (
    <span className="inline-flex items-center gap-2">
      <span className="inline-flex w-14 shrink-0">
        <Progress value={score} label="Reputation" />
      </span>
      <span className="num">{percent(score)}</span>
    </span>
  );
}
