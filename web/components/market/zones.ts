"use client";
// Zones of the market, and the one that is looked at: kept in the address.
import type { Schemas } from "@/lib/api/client";
import { setParams, useParam } from "@/lib/use-params";

export type ZoneMarket = Schemas["ZoneMarket"];
export type ZoneSeries = Schemas["ZoneSeries"];
export type Zone = Pick<ZoneMarket, "tier" | "region">;

const NO_REGION = "none"; // an empty word in an address is no choice at all

export const SPANS = [
  { value: "1h", label: "1 h" },
  { value: "24h", label: "24 h" },
  { value: "7d", label: "7 d" },
  { value: "30d", label: "30 d" },
] as const;
export type Span = (typeof SPANS)[number]["value"];

export function useSpan(): [Span, (span: string) => void] {
  const [value, set] = useParam("range");
  return [SPANS.find((span) => span.value === value)?.value ?? "24h", set];
}

export function useZone(zones: ZoneMarket[]): [ZoneMarket | undefined, (zone: Zone) => void] {
  const [tier] = useParam("tier");
  const [region] = useParam("region");
  const wanted = region === NO_REGION ? "" : region;
  const found = zones.filter((zone) => (!tier || zone.tier === tier) && (!region || zone.region === wanted));
  return [busiest(found) ?? busiest(zones), (zone) => setParams({ tier: zone.tier, region: zone.region || NO_REGION })];
}

/** Where most is offered and wanted is what most people come to see. */
export function busiest(zones: ZoneMarket[]): ZoneMarket | undefined {
  const size = (zone: ZoneMarket) => zone.capacity + zone.demand + zone.nodes;
  return zones.reduce<ZoneMarket | undefined>((best, zone) => (!best || size(zone) > size(best) ? zone : best), undefined);
}

export function regionName(region: string): string {
  return region || "no region";
}

export function zoneName(zone: Zone): string {
  return `${zone.tier} · ${regionName(zone.region)}`;
}

export function isSame(one: Zone, other: Zone): boolean {
  return one.tier === other.tier && one.region === other.region;
}

/** In parts of one; null where there was no price an hour ago. */
export function changeOf(zone: ZoneMarket): number | null {
  return zone.hour_ago > 0 ? (zone.spot - zone.hour_ago) / zone.hour_ago : null;
}
