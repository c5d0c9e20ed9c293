"use client";
// The zones of the market, and the one in the address.
import { useRef } from "react";
import type { Schemas } from "@/lib/api/client";
import { setParams, useParam, useParamState } from "@/lib/use-params";

export type ZoneMarket = Schemas["ZoneMarket"];
export type ZoneSeries = Schemas["ZoneSeries"];
export type Zone = Pick<ZoneMarket, "tier" | "region">;

const NO_REGION = "none"; // an empty parameter means no choice

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
  const [tier] = useParamState("tier");
  const [region] = useParamState("region");
  const wanted = region === NO_REGION ? "" : region;
  const found = zones.filter((zone) => (!tier || zone.tier === tier) && (!region || zone.region === wanted));
  const among = found.length > 0 ? found : zones;
  const asked = `${tier} ${region}`;
  // Another zone may become the busiest meanwhile: the page stays with the first one.
  const shown = useRef<{ asked: string; zone: Zone } | null>(null);
  const before = shown.current?.asked === asked ? shown.current.zone : null;
  const zone = among.find((one) => before && isSame(one, before)) ?? busiest(among);
  if (!before) shown.current = zone ? { asked, zone } : null; // even if a later answer omits it
  return [zone, (chosen) => setParams({ tier: chosen.tier, region: chosen.region || NO_REGION })];
}

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

/** A share; null if there was no price an hour ago. */
export function changeOf(zone: ZoneMarket): number | null {
  return zone.hour_ago > 0 ? (zone.spot - zone.hour_ago) / zone.hour_ago : null;
}
