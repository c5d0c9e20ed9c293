"use client";
// A node in few words: what it is, whether it works, and how its claim stands.
import { Badge, StateBadge } from "@/components/ui/badge";
import { Progress } from "@/components/ui/progress";
import type { Schemas } from "@/lib/api/client";
import { megabytes } from "@/lib/format";

export type NodeView = Schemas["NodeView"];

/** What its owner wants of it comes before whether it is heard: a paused node is paused, online or not. */
export function NodeState({ node }: { node: NodeView }) {
  const word = node.state === "active" ? (node.online ? "online" : "offline") : node.state;
  return (
    <span className="inline-flex items-center gap-1.5">
      <StateBadge state={word} title={node.state === "active" ? undefined : node.online ? "online" : "offline"} />
      {node.reputation?.banned_at_ms != null && <StateBadge state="banned" />}
    </span>
  );
}

const STANDING = { confirmed: "good", lowered: "warn" } as const;

/** The tier that counts, and how that came about. */
export function NodeTier({ node }: { node: NodeView }) {
  const found = node.hardware;
  const standing = found?.standing ?? "claimed";
  return (
    <span className="inline-flex min-w-0 items-center gap-2" title={found?.sentence}>
      <span className="truncate font-medium">{node.tier}</span>
      <Badge tone={standing in STANDING ? STANDING[standing as keyof typeof STANDING] : "neutral"}>
        {standing === "lowered" ? `claims ${found?.claimed}` : standing}
      </Badge>
    </span>
  );
}

/** "8 cores · 16.4 GB · 2 × RTX 4090". */
export function hardwareWords(node: NodeView): string {
  const { cores, ram_mb, gpus = [] } = node.profile;
  const names = new Map<string, number>();
  for (const gpu of gpus) names.set(gpu.name, (names.get(gpu.name) ?? 0) + 1);
  const cards = [...names].map(([name, many]) => (many > 1 ? `${many} × ${name}` : name));
  return [`${cores} ${cores === 1 ? "core" : "cores"}`, megabytes(ram_mb), ...cards].join(" · ");
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
