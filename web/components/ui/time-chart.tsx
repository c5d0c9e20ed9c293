"use client";
// Values over time: as lines, as a summary for screen readers, and as a table.
import dynamic from "next/dynamic";
import { useState } from "react";
import { count, moment } from "@/lib/format";
import { retryImport } from "@/lib/retry-import";
import { classes } from "./classes";
import { Skeleton } from "./states";

export type SeriesColour = 1 | 2 | 3 | 4 | 5 | 6;

export interface TimeSeries {
  label: string;
  points: (number | null)[]; // as many as `times`; null: unknown
  colour?: SeriesColour; // by default, by its position
  dashed?: boolean; // a limit, a reference
  filled?: boolean; // the area under the line
}

export interface TimeChartProps {
  label: string; // such as "CPU of attempt 2"
  times: number[]; // milliseconds, the oldest first
  series: TimeSeries[];
  format?: (value: number) => string;
  height?: number;
  range?: [number, number]; // in milliseconds; by default from the first to the last time
  least?: number; // the scale starts here, or below
  most?: number; // the scale ends here, or above
  steps?: boolean; // a value holds until the next one: prices
}

const Plot = dynamic(() => retryImport(() => import("./time-chart-plot")).then((module) => module.TimeChartPlot), {
  ssr: false,
  loading: () => <Skeleton className="h-full" />,
});

const MARKS: Record<SeriesColour, string> = {
  1: "border-series-1",
  2: "border-series-2",
  3: "border-series-3",
  4: "border-series-4",
  5: "border-series-5",
  6: "border-series-6",
};

export function seriesColour(series: TimeSeries, index: number): SeriesColour {
  return series.colour ?? (((index % 6) + 1) as SeriesColour);
}

export function TimeChart(props: TimeChartProps) {
  const { label, times, series, format = count, height = 220 } = props;
  const [pointed, setPointed] = useState<number | null>(null);
  const last = times.length - 1;
  const at = pointed !== null && pointed <= last ? pointed : last;
  return (
    <figure className="grid min-w-0 gap-2">
      <figcaption className="flex flex-wrap items-center gap-x-5 gap-y-1 text-sm">
        <span className="sr-only">{`${label}. ${summary(props)}`}</span>
        {series.map((one, index) => (
          <span key={one.label} className="inline-flex min-w-0 items-center gap-2">
            <span
              aria-hidden="true"
              className={classes("w-4 shrink-0 border-t-2", one.dashed && "border-dashed", MARKS[seriesColour(one, index)])}
            />
            <span className="truncate text-muted">{one.label}</span>
            <span className="num font-medium">{formatOrDash(one.points[at], format)}</span>
          </span>
        ))}
        <span className="num ml-auto text-muted">{pointed !== null && at >= 0 ? moment(times[at] as number) : ""}&nbsp;</span>
      </figcaption>
      <div className="min-w-0" style={{ height }}>
        <Plot {...props} format={format} height={height} onPoint={setPointed} />
      </div>
      <AsTable {...props} format={format} />
    </figure>
  );
}

function formatOrDash(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

function summary({ series, times, format = count }: TimeChartProps): string {
  if (times.length === 0) return "Nothing recorded yet.";
  const span = `From ${moment(times[0] as number)} to ${moment(times.at(-1) as number)}.`;
  const courses = series.map((one) => {
    const known = one.points.filter((value) => value !== null);
    if (known.length === 0) return `${one.label}: unknown.`;
    const [low, high] = [Math.min(...known), Math.max(...known)];
    return `${one.label}: lowest ${format(low)}, highest ${format(high)}, latest ${format(known.at(-1) as number)}.`;
  });
  return [span, ...courses].join(" ");
}

const ROWS_MAX = 240;

function AsTable({ label, times, series, format = count }: TimeChartProps) {
  const [open, setOpen] = useState(false);
  const every = Math.max(1, Math.ceil(times.length / ROWS_MAX));
  const rows = times.map((_, index) => index).filter((index) => (times.length - 1 - index) % every === 0);
  return (
    <details className="text-sm" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary className="w-fit text-muted hover:text-ink">As a table</summary>
      {open && (
        <div role="region" aria-label={`${label}, as a table`} tabIndex={0} className="mt-2 max-h-80 overflow-auto">
          <table className="w-full border-collapse text-left">
            <thead>
              <tr>
                <th scope="col" className="sticky top-0 bg-surface py-1 pr-4 font-medium text-muted">
                  Time
                </th>
                {series.map((one) => (
                  <th key={one.label} scope="col" className="sticky top-0 bg-surface px-4 py-1 text-right font-medium text-muted">
                    {one.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.reverse().map((index) => (
                <tr key={times[index]} className="border-line/70 border-t">
                  <td className="num whitespace-nowrap py-1 pr-4">{moment(times[index] as number)}</td>
                  {series.map((one) => (
                    <td key={one.label} className="num px-4 py-1 text-right">
                      {formatOrDash(one.points[index], format)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
