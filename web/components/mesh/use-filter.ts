"use client";
// The filters of the map and of the table, which are in the address.
import { useDeferredValue, useMemo } from "react";
import { useParam } from "@/lib/use-params";
import type { MeshNode } from "./families";

export interface Filter {
  words: string;
  tier: string;
  region: string;
}

export const NO_REGION = "none"; // an empty parameter means no choice

export function useFilter(): Filter {
  const [words] = useParam("q");
  const [tier] = useParam("tier");
  const [region] = useParam("region");
  return { words, tier, region };
}

export function useShown(nodes: MeshNode[], { words, tier, region }: Filter): MeshNode[] {
  const sought = useDeferredValue(words.trim().toLowerCase());
  return useMemo(() => {
    if (!sought && !tier && !region) return nodes;
    const wanted = region === NO_REGION ? "" : region;
    return nodes.filter(
      (node) =>
        (!tier || node.tier === tier) &&
        (!region || node.region === wanted) &&
        (!sought || `${node.name}\n${node.owner_name}\n${node.place}\n${node.tier}\n${node.id}`.toLowerCase().includes(sought)),
    );
  }, [nodes, sought, tier, region]);
}

/** The different values, with how many nodes have each. */
export function choices(nodes: MeshNode[], of: (node: MeshNode) => string): [string, number][] {
  const found = new Map<string, number>();
  for (const node of nodes) found.set(of(node), (found.get(of(node)) ?? 0) + 1);
  return [...found].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
}
