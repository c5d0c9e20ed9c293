"use client";
import { count } from "@/lib/format";
import { type MeshNode, outlineOf } from "./families";
import { TIER_COLOURS, tierColour, tiersOf } from "./tiers";

const FILLS: Record<number, string> = {
  1: "fill-series-1",
  2: "fill-series-2",
  3: "fill-series-3",
  4: "fill-series-4",
  5: "fill-series-5",
  6: "fill-series-6",
  7: "fill-series-7",
  8: "fill-series-8",
  9: "fill-series-9",
  10: "fill-series-10",
  11: "fill-series-11",
  12: "fill-series-12",
};

export function Glyph({ tier, family }: { tier: string; family: string }) {
  const fill = FILLS[TIER_COLOURS[tierColour(tier)] ?? 6] ?? "";
  return (
    <svg viewBox="-1.3 -1.3 2.6 2.6" aria-hidden="true" className={`size-3 shrink-0 ${fill}`}>
      <path d={outlineOf(family)} />
    </svg>
  );
}

export function Legend({ nodes }: { nodes: MeshNode[] }) {
  return (
    <div className="grid gap-2 px-5 py-3 text-sm">
      <ul aria-label="Tiers" className="flex flex-wrap gap-x-5 gap-y-1">
        {tiersOf(nodes).map(({ name, family, count: many }) => (
          <li key={name} title={family} className="flex items-center gap-2">
            <Glyph tier={name} family={family} /> {name}
            <span className="num text-muted">{count(many)}</span>
          </li>
        ))}
      </ul>
      <p className="text-muted">
        Colour: tier. Shape: kind of hardware. Size: capacity. Ring: jobs run there. Hollow: takes no new jobs. Thick outline:
        your node. Number: several nodes.
      </p>
    </div>
  );
}
