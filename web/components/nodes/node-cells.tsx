"use client";
// A node in few words: what it is, whether it works, and how its claim stands.
import { StateBadge } from "@/components/ui/badge";
import { classes } from "@/components/ui/classes";
import { Progress } from "@/components/ui/progress";
import type { Schemas } from "@/lib/api/client";
import { megabytes, pluralize } from "@/lib/format";

export type NodeView = Schemas["NodeView"];

/** What it does, all things considered: the hub's own word, the same in every list. */
export function NodeState({ node }: { node: NodeView }) {
  return <StateBadge state={node.status} title={node.sentence || undefined} />;
}

/** The tier that counts, and how that came about. */
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

/** Its cards by name: "2 × NVIDIA H100"; empty without any. */
export function cardWords(node: NodeView): string {
  const names = new Map<string, number>();
  for (const gpu of node.profile.gpus ?? []) names.set(gpu.name, (names.get(gpu.name) ?? 0) + 1);
  return [...names].map(([name, many]) => (many > 1 ? `${many} × ${name}` : name)).join(", ");
}

/** "8 cores · 16.4 GB". */
export function coreWords(node: NodeView): string {
  const { cores, ram_mb } = node.profile;
  return `${pluralize(cores, "core")} · ${megabytes(ram_mb)}`;
}

/** A score from 0 to 1 as a bar with its number. */
export function ScoreBar({ score }: { score: number }) {
  return (
    <span className="inline-flex items-center gap-2">
      <span className="inline-flex w-14 shrink-0">
        <Progress value={score} label="Reputation, from 0 to 1" />
      </span>
      <span className="num">{score.toFixed(2)}</span>
    </span>
  );
}
