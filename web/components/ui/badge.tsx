import type { ReactNode } from "react";
import { humanize } from "@/lib/labels";
import { classes } from "./classes";

export type Tone = "neutral" | "good" | "warn" | "bad" | "info" | "accent";

const TONES: Record<Tone, string> = {
  neutral: "bg-sunken text-muted",
  good: "bg-good-soft text-good",
  warn: "bg-warn-soft text-warn",
  bad: "bg-bad-soft text-bad",
  info: "bg-info-soft text-info",
  accent: "bg-accent-soft text-accent",
};

export function Badge({ tone = "neutral", title, children }: { tone?: Tone; title?: string; children: ReactNode }) {
  return (
    <span
      title={title}
      className={classes(
        "inline-flex max-w-full items-center gap-1.5 whitespace-nowrap rounded-full px-2.5 py-0.5 font-medium text-sm",
        TONES[tone],
      )}
    >
      {children}
    </span>
  );
}

// The colours of the API's states.
const STATES: Record<string, Tone> = {
  queued: "neutral",
  waiting: "neutral",
  pending: "neutral",
  leased: "info",
  running: "info",
  succeeded: "good",
  done: "good",
  complete: "good",
  paid: "good",
  active: "good",
  online: "good",
  ok: "good",
  home: "good",
  failed: "bad",
  lost: "bad",
  expired: "bad",
  rejected: "bad",
  revoked: "bad",
  banned: "bad",
  fail: "bad",
  cancelled: "warn",
  skipped: "neutral",
  paused: "warn",
  draining: "warn",
  warn: "warn",
  requested: "warn",
  unknown: "warn",
  delivered: "good",
  good: "good",
  disabled: "bad",
  offline: "neutral",
  left: "neutral",
  ready: "good",
  working: "info",
  unresponsive: "bad",
  not_polling: "warn",
  cooling_off: "warn",
  owner_only: "warn",
  floor_above_price: "warn",
  note: "neutral",
};

function stateTone(state: string): Tone {
  return STATES[state] ?? "neutral";
}

export function StateBadge({ state, title }: { state: string; title?: string }) {
  const tone = stateTone(state);
  return (
    <Badge tone={tone} title={title}>
      <span aria-hidden="true" className={classes("size-1.5 rounded-full bg-current", tone === "info" && "animate-pulse")} />
      {humanize(state)}
    </Badge>
  );
}
