// A group's items as files for other programs.
import type { GroupItem } from "./use-items";

const COLUMNS = ["key", "job_id", "state", "why", "exit_code", "error", "finished_at", "result", "result_artifact", "files"];

export function asCsv(items: GroupItem[]): string {
  const rows = items.map((item) =>
    [
      item.key ?? "",
      item.job_id ?? "",
      item.state,
      item.sentence,
      item.exit_code ?? "",
      item.error ?? "",
      item.finished_at_ms ? new Date(item.finished_at_ms).toISOString() : "",
      item.result ?? "",
      item.result_artifact ?? "",
      item.outputs.map((file) => file.name).join("; "),
    ].map(cell),
  );
  return [COLUMNS, ...rows].map((row) => `${row.join(",")}\r\n`).join("");
}

/** Quoted where it must be. A stranger's text that a spreadsheet would take for a formula becomes plain text. */
function cell(value: string | number): string {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function asJson(items: GroupItem[]): string {
  return JSON.stringify(items, null, 1);
}
