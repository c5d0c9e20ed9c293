// What is shown, as a file: for a spreadsheet, or whole.

import { csv, saveText } from "@/lib/save";
import type { HubEvent } from "./event";

export function saveCsv(events: HubEvent[], names: Record<string, string>): void {
  const head = [
    "seq",
    "time",
    "at_ms",
    "action",
    "actor",
    "actor_name",
    "account_id",
    "job_id",
    "attempt_id",
    "node_id",
    "group_id",
  ];
  const rows = events.map((event) => [
    event.seq,
    new Date(event.at_ms).toISOString(),
    event.at_ms,
    event.action,
    event.actor,
    names[event.actor],
    event.account_id,
    event.job_id,
    event.attempt_id,
    event.node_id,
    event.group_id,
    event.before,
    event.after,
    event.reason,
    event.data ? JSON.stringify(event.data) : "",
  ]);
  saveText("events.csv", csv([[...head, "before", "after", "reason", "data"], ...rows]), "text/csv");
}

export function saveJson(events: HubEvent[]): void {
  saveText("events.json", JSON.stringify(events, null, 2), "application/json");
}
