// The loaded events as a file: for a spreadsheet, or complete.
import { csv, saveText } from "@/lib/save";
import type { HubEvent } from "./use-trail";

const IDS = ["account_id", "job_id", "attempt_id", "node_id", "group_id"] as const;

export function saveCsv(events: HubEvent[], names: Record<string, string>): void {
  const rows = events.map((event) => [
    event.seq,
    new Date(event.at_ms).toISOString(),
    event.at_ms,
    event.action,
    event.actor,
    names[event.actor],
    ...IDS.map((name) => event[name]),
    event.before,
    event.after,
    event.reason,
    event.data ? JSON.stringify(event.data) : "",
  ]);
  const head = ["seq", "time", "at_ms", "action", "actor", "actor_name", ...IDS, "before", "after", "reason", "data"];
  saveText("events.csv", csv([head, ...rows]), "text/csv");
}

export function saveJson(events: HubEvent[]): void {
  saveText("events.json", JSON.stringify(events, null, 2), "application/json");
}
