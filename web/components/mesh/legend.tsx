"use client";
import { count } from "@/lib/format";
import { FAMILIES, type Family, type MeshNode, OUTLINES } from "./families";

const FILLS: Record<string, string> = {
  "series-1": "fill-series-1",
  "series-2": "fill-series-2",
  "series-3": "fill-series-3",
  "series-4": "fill-series-4",
  "series-5": "fill-series-5",
};

export function Glyph({ family }: { family: Family }) {
  return (
    <svg viewBox="-1.3 -1.3 2.6 2.6" aria-hidden="true" className={`size-3 shrink-0 ${FILLS[family.colour] ?? ""}`}>
      <path d={OUTLINES[family.shape]} />
    </svg>
  );
}

/** The kinds that are there, with how many; and what the looks of a mark mean. */
export function Legend({ nodes }: { nodes: MeshNode[] }) {
  return (
    <div className="flex flex-wrap items-center gap-x-5 gap-y-1 px-5 py-3 text-sm">
      <ul aria-label="Kinds of hardware" className="flex flex-wrap gap-x-5 gap-y-1">
        {FAMILIES.map((family) => (
          <li key={family.name} className="flex items-center gap-2">
            <Glyph family={family} /> {family.name}
            <span className="num text-muted">{count(nodes.filter((node) => node.family === family.name).length)}</span>
          </li>
        ))}
      </ul>
      <p className="text-muted">
        Larger: more capacity. Ringed: work runs there. Hollow: takes no new work. Strong edge: yours. A number: so many nodes.
      </p>
    </div>
  );
}
