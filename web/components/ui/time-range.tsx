"use client";
// A span of time as a filter: the last day, week, month, or from one moment to another. It lives in the address.
import { useEffect, useMemo, useRef, useState } from "react";
import { setParams, useParam, useParamState } from "@/lib/use-params";
import { type Option, SelectField, TextField } from "./field";

const HOUR_MS = 3_600_000;
const SPANS: Record<string, number> = { "1h": HOUR_MS, "24h": 24 * HOUR_MS, "7d": 168 * HOUR_MS, "30d": 720 * HOUR_MS };
const BETWEEN = "between";
const OPTIONS: Option[] = [
  { value: "", label: "Any time" },
  { value: "1h", label: "The last hour" },
  { value: "24h", label: "The last 24 hours" },
  { value: "7d", label: "The last 7 days" },
  { value: "30d", label: "The last 30 days" },
  { value: BETWEEN, label: "From … to …" },
];

interface TimeRange {
  since_ms?: number;
  until_ms?: number;
}

/** What the address says, as the API's filters. "The last day" is counted from when it was chosen, in whole minutes. */
export function useTimeRange(): TimeRange {
  const [span] = useParam("time");
  const [from] = useParam("from");
  const [to] = useParam("to");
  return useMemo(() => {
    const length = SPANS[span];
    if (length !== undefined) return { since_ms: Math.floor(Date.now() / 60_000) * 60_000 - length };
    if (span !== BETWEEN) return {};
    const [since_ms, until_ms] = [parseWhole(from), parseWhole(to)];
    return { ...(since_ms !== undefined && { since_ms }), ...(until_ms !== undefined && { until_ms }) };
  }, [span, from, to]);
}

export function TimeRangeField({ className }: { className?: string }) {
  const [span] = useParamState("time");
  const [from] = useParam("from");
  const [to] = useParam("to");
  return (
    <>
      <SelectField
        label="Time"
        className={className}
        options={OPTIONS}
        value={span}
        onChange={(event) => setParams({ time: event.target.value, ...(event.target.value !== BETWEEN && { from: "", to: "" }) })}
      />
      {span === BETWEEN && (
        <>
          <MomentField label="From" ms={parseWhole(from)} onChange={(ms) => setParams({ from: ms })} />
          <MomentField label="To" ms={parseWhole(to)} onChange={(ms) => setParams({ to: ms })} />
        </>
      )}
    </>
  );
}

function MomentField({ label, ms, onChange }: { label: string; ms: number | undefined; onChange: (ms: string) => void }) {
  const [text, setText] = useState(ms === undefined ? "" : local(ms));
  const sent = useRef(ms);
  useEffect(() => {
    if (ms === sent.current) return;
    sent.current = ms;
    setText(ms === undefined ? "" : local(ms));
  }, [ms]);
  const change = (value: string) => {
    setText(value);
    const chosen = new Date(value).getTime();
    if (chosen < 0) return; // a year that is still being typed
    sent.current = Number.isNaN(chosen) ? undefined : chosen;
    onChange(Number.isNaN(chosen) ? "" : String(chosen));
  };
  return <TextField label={label} type="datetime-local" value={text} onChange={(event) => change(event.target.value)} />;
}

/** As the control wants it: the local time without a zone. */
function local(ms: number): string {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function parseWhole(text: string): number | undefined {
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
