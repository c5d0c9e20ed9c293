import { csv } from "@/lib/save";
import type { GroupItem } from "./use-items";

const COLUMNS = ["key", "job_id", "state", "why", "exit_code", "error", "finished_at", "result", "result_artifact", "files"];

export function asCsv(items: GroupItem[]): string {
  const rows = items.map((item) => [
    item.key,
    item.job_id,
    item.state,
    item.sentence,
    item.exit_code,
    item.error,
    item.finished_at_ms ? new Date(item.finished_at_ms).toISOString() : "",
    item.result,
    item.result_artifact,
    item.outputs.map((file) => file.name).join("; "),
  ]);
  return csv([COLUMNS, ...rows]);
}

export function asJson(items: GroupItem[]): string {
  return JSON.stringify(items, null, 1);
}
