"use client";
// Words that the pool knows already, offered while typing.
import { $api } from "@/lib/api/client";

const SLOW = { staleTime: 60_000 };

export function useSuggestions(): { tiers: string[]; regions: string[]; groups: string[] } {
  const market = $api.useQuery("get", "/market", undefined, SLOW);
  const groups = $api.useQuery("get", "/groups", { params: { query: { kind: "group", limit: 50 } } }, SLOW);
  const zones = market.data?.zones ?? [];
  return {
    tiers: unique(zones.map((zone) => zone.tier)),
    regions: unique(zones.map((zone) => zone.region)),
    groups: unique((groups.data?.groups ?? []).map((group) => group.name)),
  };
}

function unique(words: string[]): string[] {
  return [...new Set(words)].sort();
}
