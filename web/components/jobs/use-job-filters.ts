"use client";
// What the list is narrowed down to: all of it in the address.
import { useSearchParams } from "next/navigation";
import { useMemo, useRef } from "react";
import type { Schemas } from "@/lib/api/client";
import type { paths } from "@/lib/api/schema";
import { useNow } from "@/lib/clock";

export type JobQuery = NonNullable<paths["/jobs"]["get"]["parameters"]["query"]>;
type JobState = Schemas["JobState"];
type JobKind = Schemas["JobKind"];

export const STATES: JobState[] = ["queued", "leased", "running", "succeeded", "failed", "cancelled", "expired"];
export const KINDS: JobKind[] = ["script", "command", "function", "class"];

const HOUR_MS = 3_600_000;
export const SPANS: { value: string; label: string; ms: number }[] = [
  { value: "1h", label: "The last hour", ms: HOUR_MS },
  { value: "24h", label: "The last day", ms: 24 * HOUR_MS },
  { value: "7d", label: "The last week", ms: 7 * 24 * HOUR_MS },
  { value: "30d", label: "The last 30 days", ms: 30 * 24 * HOUR_MS },
];

/** The names of the filters in the address. */
export const FILTERS = ["state", "kind", "q", "group", "node", "since", "whose"] as const;

interface JobFilters {
  query: JobQuery;
  states: string[];
  some: boolean; // something is filtered
}

export function useJobFilters(): JobFilters {
  const params = useSearchParams();
  const text = params.toString();
  const now = useNow(60_000);
  const latest = useRef(0);
  latest.current = now;
  const alive = now > 0;
  return useMemo(() => {
    const from = new URLSearchParams(text);
    const states = from.getAll("state").filter((state): state is JobState => STATES.includes(state as JobState));
    const kind = KINDS.find((known) => known === from.get("kind"));
    const span = SPANS.find((known) => known.value === from.get("since"));
    const [q, group, node] = [from.get("q"), from.get("group"), from.get("node")];
    // Counted from when it was chosen: a window that moves would be another list every minute.
    const at = Math.floor(latest.current / 60_000) * 60_000;
    const query: JobQuery = {
      ...(states.length > 0 && { state: states }),
      ...(kind && { kind }),
      ...(q && { q: q.slice(0, 200) }),
      ...(group && { group_id: group }),
      ...(node && { node_id: node }),
      ...(span && alive && { since_ms: at - span.ms }),
      ...(from.get("whose") === "mine" && { all: false }),
    };
    return { query, states, some: FILTERS.some((name) => name !== "whose" && from.has(name)) };
  }, [text, alive]);
}
