"use client";
// A span of time as a filter in the address: the last day, week or month, or from one moment to another.
import { useEffect, useMemo, useRef, useState } from "react";
import { setParams, useParam } from "@/lib/use-params";
import { TextField } from "./field";
import { ParamSelect } from "./param-field";

export const HOUR_MS = 3_600_000;
export const SPANS: Record<string, { hours: number; label: string }> = {
  "1h": { hours: 1, label: "Last hour" },
  "24h": { hours: 24, label: "Last 24 hours" },
  "7d": { hours: 168, label: "Last 7 days" },
  "30d": { hours: 720, label: "Last 30 days" },
};
const BETWEEN = "between";
const OPTIONS = [
  { value: "", label: "Any time" },
  ...Object.entries(SPANS).map(([value, { label }]) => ({ value, label })),
  { value: BETWEEN, label: "From … to …" },
];

/** The address as the API's filters. "The last day" is counted from when it was chosen, in whole minutes. */
export function useTimeRange(): { since_ms?: number; until_ms?: number } {
  const [span] = useParam("time");
  const [from] = useParam("from");
  const [to] = useParam("to");
  return useMemo(() => {
    const hours = SPANS[span]?.hours;
    if (hours) return { since_ms: Math.floor(Date.now() / 60_000) * 60_000 - hours * HOUR_MS };
    if (span !== BETWEEN) return {};
    const [since_ms, until_ms] = [parseWhole(from), parseWhole(to)];
    return { ...(since_ms !== undefined && { since_ms }), ...(until_ms !== undefined && { until_ms }) };
  }, [span, from, to]);
}

export function TimeRangeField() {
  const [span] = useParam("time");
  return (
    <>
      <ParamSelect name="time" label="Time" options={OPTIONS} />
      {span === BETWEEN && (
        <>
          <MomentField name="from" label="From" />
          <MomentField name="to" label="To" />
        </>
      )}
    </>
  );
}

function MomentField({ name, label }: { name: string; label: string }) {
  const ms = parseWhole(useParam(name)[0]);
  const [text, setText] = useState(ms === undefined ? "" : localTime(ms));
  const sent = useRef(ms);
  useEffect(() => {
    if (ms === sent.current) return;
    sent.current = ms;
    setText(ms === undefined ? "" : localTime(ms));
  }, [ms]);
  const change = (value: string) => {
    setText(value);
    const chosen = new Date(value).getTime();
    if (chosen < 0) return; // a year that is still being typed
    sent.current = Number.isNaN(chosen) ? undefined : chosen;
    setParams({ [name]: sent.current === undefined ? "" : String(chosen) });
  };
  return <TextField label={label} type="datetime-local" value={text} onChange={(event) => change(event.target.value)} />;
}

/** As the control needs it: local time without a zone. */
function localTime(ms: number): string {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function parseWhole(text: string): number | undefined {
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
