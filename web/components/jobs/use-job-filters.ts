"use client";
// The filters of the list of jobs, which are in the address.
import { useSearchParams } from "next/navigation";
import { useMemo } from "react";
import { HOUR_MS, SPANS } from "@/components/ui/time-range";
import type { Schemas } from "@/lib/api/client";
import type { paths } from "@/lib/api/schema";
import { setParams } from "@/lib/use-params";

type JobQuery = NonNullable<paths["/jobs"]["get"]["parameters"]["query"]>;

export const STATES: Schemas["JobState"][] = ["queued", "leased", "running", "succeeded", "failed", "cancelled", "expired"];
export const KINDS: Schemas["JobKind"][] = ["script", "command", "function", "class"];

const FILTERS = ["state", "kind", "q", "group", "node", "since", "whose"];

export function clearFilters(): void {
  setParams(Object.fromEntries(FILTERS.map((name) => [name, ""])));
}

/** `some`: the list is filtered. */
export function useJobFilters(): { query: JobQuery; states: string[]; some: boolean } {
  const text = useSearchParams().toString();
  return useMemo(() => {
    const params = new URLSearchParams(text);
    const states = STATES.filter((state) => params.getAll("state").includes(state));
    const kind = KINDS.find((known) => known === params.get("kind"));
    const hours = SPANS[params.get("since") ?? ""]?.hours;
    const [q, group, node] = [params.get("q"), params.get("group"), params.get("node")];
    // From when it was chosen: a moving window would be another list every minute.
    const minute = Math.floor(Date.now() / 60_000) * 60_000;
    const query: JobQuery = {
      ...(states.length > 0 && { state: states }),
      ...(kind && { kind }),
      ...(q && { q: q.slice(0, 200) }),
      ...(group && { group_id: group }),
      ...(node && { node_id: node }),
      ...(hours && { since_ms: minute - hours * HOUR_MS }),
      ...(params.get("whose") === "mine" && { all: false }),
    };
    return { query, states, some: FILTERS.some((name) => name !== "whose" && params.has(name)) };
  }, [text]);
}
