"use client";
// Describes the mark under the pointer: in a small panel beside it, and in words for screen readers.
import { count, megabytes, pluralize, units } from "@/lib/format";
import { humanize } from "@/lib/labels";
import type { Size } from "@/lib/use-size";
import type { MeshNode } from "./families";
import { Glyph } from "./legend";
import type { Mark } from "./marks";

const TIERS_SHOWN = 6;

export function capacityOf(node: MeshNode): string {
  if (node.gpus > 0) return `${node.gpus} × ${node.tier}, ${megabytes(node.vram_mb)} VRAM`;
  return `${units(node.cores * 1000)} ${node.cores === 1 ? "core" : "cores"}`;
}

/** The places of a cluster's nodes, the most frequent first. */
function placesOf(mark: Mark, nodes: MeshNode[]): string {
  const found = new Map<string, number>();
  for (const index of mark.nodes) {
    const place = nodes[index]?.place ?? "";
    found.set(place, (found.get(place) ?? 0) + 1);
  }
  const names = [...found].sort(([, one], [, other]) => other - one).map(([name]) => name);
  return names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

export function wordsOf(mark: Mark, nodes: MeshNode[]): string {
  const node = nodes[mark.nodes[0] as number];
  if (!node) return "";
  if (mark.tiers.length > 0) return `${pluralize(mark.nodes.length, "node")}: ${placesOf(mark, nodes)}. Enter zooms in.`;
  return `${node.name}, ${node.place}, ${capacityOf(node)}, ${humanize(node.status)}, ${count(node.running)} running. Enter opens it.`;
}

export function MapTip({ mark, nodes, size }: { mark: Mark; nodes: MeshNode[]; size: Size }) {
  const node = nodes[mark.nodes[0] as number];
  if (!node) return null;
  const right = mark.x < size.width / 2;
  const gap = mark.radius + 12;
  const style = {
    top: Math.max(4, Math.min(size.height - 110, mark.y - 24)),
    ...(right ? { left: mark.x + gap } : { right: size.width - mark.x + gap }),
  };
  return (
    <div style={style} className="panel pointer-events-none absolute z-10 max-w-64 px-3 py-2 text-sm shadow-lg">
      {mark.tiers.length > 0 ? <ClusterTip mark={mark} nodes={nodes} /> : <NodeTip node={node} />}
    </div>
  );
}

function ClusterTip({ mark, nodes }: { mark: Mark; nodes: MeshNode[] }) {
  return (
    <>
      <p className="num font-medium">{pluralize(mark.nodes.length, "node")}</p>
      <p className="text-muted">{placesOf(mark, nodes)}</p>
      {mark.tiers.slice(0, TIERS_SHOWN).map(({ name, family, count: many }) => (
        <p key={name} className="flex items-center gap-2">
          <Glyph tier={name} family={family} /> <span className="num">{count(many)}</span> {name}
        </p>
      ))}
      {mark.tiers.length > TIERS_SHOWN && <p className="text-muted">and {mark.tiers.length - TIERS_SHOWN} more tiers</p>}
    </>
  );
}

function NodeTip({ node }: { node: MeshNode }) {
  return (
    <>
      <p className="break-words font-medium">{node.name}</p>
      <p className="text-muted">{node.mine ? "yours" : `of ${node.owner_name}`}</p>
      <p className="text-muted">{node.place}</p>
      <p>{capacityOf(node)}</p>
      <p className="num text-muted">
        {humanize(node.status)}
        {node.running > 0 && `, ${count(node.running)} running`}
      </p>
    </>
  );
}
