"use client";
import { Card } from "@/components/ui/card";
import { Link } from "@/components/ui/link";
import { count, pluralize } from "@/lib/format";
import { nodeHref } from "@/lib/links";
import type { MeshNode } from "./families";
import { Glyph } from "./legend";
import { capacityOf } from "./map-tip";

const LISTED = 50;

/** Nodes without a known region. They are not located by their address. */
export function Unplaced({ nodes }: { nodes: MeshNode[] }) {
  const found = nodes.filter((node) => node.lat === null);
  if (found.length === 0) return null;
  return (
    <Card title="Not on the map" note={`${pluralize(found.length, "node")} without a region`} flush>
      <ul tabIndex={0} aria-label="Nodes that are not on the map" className="max-h-52 overflow-y-auto border-line border-t">
        {found.slice(0, LISTED).map((node) => (
          <li key={node.id} className="flex items-center gap-2.5 px-5 py-1.5 text-sm">
            <Glyph tier={node.tier} family={node.family} />
            <Link href={nodeHref(node.id)} className="link min-w-0 truncate">
              {node.name}
            </Link>
            <span className="num ml-auto truncate text-muted">{capacityOf(node)}</span>
          </li>
        ))}
        {found.length > LISTED && (
          <li className="px-5 py-1.5 text-muted text-sm">and {count(found.length - LISTED)} more, in the table</li>
        )}
      </ul>
    </Card>
  );
}
