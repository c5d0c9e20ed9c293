// The colour of a tier on the map, in the legend and in the table.
import type { MeshNode } from "./families";

/** Colours of app/globals.css ("series-1" …). Tiers beyond these share the last one, which is grey. */
export const TIER_COLOURS = [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 6];

const chosen = new Map<string, number>();

export interface Tier {
  name: string;
  family: string;
  count: number;
}

/** The tiers of these nodes, the most frequent first. */
export function tiersOf(nodes: MeshNode[]): Tier[] {
  const found = new Map<string, Tier>();
  for (const node of nodes) {
    const tier = found.get(node.tier);
    if (tier) tier.count += 1;
    else found.set(node.tier, { name: node.tier, family: node.family, count: 1 });
  }
  return [...found.values()].sort((one, other) => other.count - one.count || one.name.localeCompare(other.name, "en"));
}

/** Gives each tier a colour, which it keeps while the page is open. */
export function colourTiers(tiers: Tier[]): void {
  for (const { name } of tiers) if (!chosen.has(name)) chosen.set(name, chosen.size);
}

/** The index of a tier's colour in TIER_COLOURS. */
export function tierColour(tier: string): number {
  return Math.min(chosen.get(tier) ?? TIER_COLOURS.length - 1, TIER_COLOURS.length - 1);
}
