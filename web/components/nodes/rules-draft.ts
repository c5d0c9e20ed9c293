// An owner's rules as text fields.
import type { Schemas } from "@/lib/api/client";

type Rules = Schemas["NodeRules"];
export type Draft = {
  allow_submitters: string;
  deny_submitters: string;
  allow_labels: string;
  deny_labels: string;
  network: boolean;
  gpus: boolean;
  minutes_max: string;
  ram_mb_max: string;
  disk_mb_max: string;
  score_min: string;
};

export type Typed = { [Name in keyof Draft]: Draft[Name] extends string ? Name : never }[keyof Draft];

export function asDraft(rules: Rules): Draft {
  const list = (names: string[] | undefined) => (names ?? []).join(", ");
  const whole = (value: number | null | undefined) => (value == null ? "" : String(value));
  return {
    allow_submitters: list(rules.allow_submitters),
    deny_submitters: list(rules.deny_submitters),
    allow_labels: list(rules.allow_labels),
    deny_labels: list(rules.deny_labels),
    network: rules.network ?? true,
    gpus: rules.gpus ?? true,
    minutes_max: whole(rules.minutes_max),
    ram_mb_max: whole(rules.ram_mb_max),
    disk_mb_max: whole(rules.disk_mb_max),
    score_min: rules.score_min ? String(Math.round(rules.score_min * 1000) / 10) : "",
  };
}

/** The rules, or the first field that is not a number. */
export function asRules(draft: Draft): { rules: Rules } | { field: Typed; error: string } {
  for (const field of ["minutes_max", "ram_mb_max", "disk_mb_max", "score_min"] as const) {
    if (draft[field].trim() && !Number.isFinite(Number(draft[field])))
      return { field, error: "Enter a number, or leave the field empty." };
  }
  const list = (text: string) => text.split(/[\s,]+/).filter(Boolean);
  const number = (text: string) => (text.trim() ? Number(text) : null);
  return {
    rules: {
      allow_submitters: list(draft.allow_submitters),
      deny_submitters: list(draft.deny_submitters),
      allow_labels: list(draft.allow_labels),
      deny_labels: list(draft.deny_labels),
      network: draft.network,
      gpus: draft.gpus,
      minutes_max: number(draft.minutes_max),
      ram_mb_max: number(draft.ram_mb_max),
      disk_mb_max: number(draft.disk_mb_max),
      score_min: (number(draft.score_min) ?? 0) / 100,
    },
  };
}

export function sameDraft(one: Draft, other: Draft): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
