"use client";
// Draws a chart. Loaded separately, because uPlot is not needed at once.
import { type KeyboardEvent, useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colour, useTheme } from "@/lib/theme";
import { seriesColour, type TimeChartProps } from "./time-chart";

interface PlotProps extends TimeChartProps {
  format: (value: number) => string;
  height: number;
  onPoint: (index: number | null) => void;
}

const FONT = "12px ui-sans-serif, system-ui, sans-serif";
const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const CLOCK_SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export function TimeChartPlot(props: PlotProps) {
  const { label, times, series, height, range } = props;
  const theme = useTheme();
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  // A change of these makes a new plot; new values go to the existing one.
  const build = JSON.stringify([theme, height, props.steps, series.map((one) => [one.label, one.colour, one.dashed])]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: `build` stands for all that matters
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const drawn = new uPlot(options(latest, element.clientWidth), dataOf(latest.current), element);
    plot.current = drawn;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0) drawn.setSize({ width: element.clientWidth, height: latest.current.height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [build]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the range is two numbers
  useEffect(() => {
    plot.current?.setData(dataOf(latest.current));
  }, [times, series, range?.[0], range?.[1]]);

  const move = (event: KeyboardEvent) => {
    const drawn = plot.current;
    const index = drawn && nextIndex(event.key, drawn.cursor.idx ?? times.length - 1, times.length);
    if (!drawn || index === null) return;
    event.preventDefault();
    drawn.setCursor({ left: drawn.valToPos(times[index] as number, "x"), top: drawn.over.clientHeight / 2 });
  };
  return (
    <div
      ref={place}
      tabIndex={0}
      role="group"
      aria-label={`${label}: chart; the arrow keys move through time`}
      className="h-full"
      onKeyDown={move}
      onBlur={() => plot.current?.setCursor({ left: -10, top: -10 })}
    />
  );
}

function nextIndex(key: string, index: number, length: number): number | null {
  const steps: Record<string, number> = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: length - 1 };
  const next = steps[key];
  return next === undefined || length === 0 ? null : Math.min(length - 1, Math.max(0, next));
}

function dataOf({ times, series }: PlotProps): uPlot.AlignedData {
  return [times, ...series.map((one) => one.points)];
}

function options(latest: { current: PlotProps }, width: number): uPlot.Options {
  const { series, height, steps } = latest.current;
  const axis = { stroke: colour("muted"), font: FONT, grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
  const stepped = steps ? uPlot.paths.stepped?.({ align: 1 }) : undefined;
  return {
    width,
    height,
    ms: 1,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: true, range: (_plot, from, to) => spread(latest.current.range ?? [from, to]) },
      y: { range: (_plot, from, to) => bounds(from, to, latest.current) },
    },
    axes: [
      { ...axis, space: 70, size: 34, values: (_plot, splits, _axis, _space, step) => clockLabels(splits, step) },
      {
        ...axis,
        space: 36,
        values: (_plot, splits) => splits.map((value) => latest.current.format(value)),
        size: (_plot, values) => 18 + 6.6 * Math.max(4, ...(values ?? []).map((text) => text.length)),
      },
    ],
    series: [
      {},
      ...series.map((one, index) => ({
        label: one.label,
        stroke: colour(`series-${seriesColour(one, index)}`),
        ...(one.filled && { fill: `color-mix(in srgb, ${colour(`series-${seriesColour(one, index)}`)} 13%, transparent)` }),
        ...(one.dashed && { dash: [5, 4] }),
        ...(stepped && { paths: stepped }),
        width: one.dashed ? 1.5 : 2,
        points: { show: false },
      })),
    ],
    hooks: { setCursor: [(drawn) => latest.current.onPoint((drawn.cursor.left ?? -1) < 0 ? null : (drawn.cursor.idx ?? null))] },
  };
}

/** A single moment gets half a minute on both sides. */
function spread([from, to]: [number, number]): [number, number] {
  return from < to ? [from, to] : [from - MINUTE_MS / 2, from + MINUTE_MS / 2];
}

function bounds(from: number | null, to: number | null, { least, most }: PlotProps): [number, number] {
  const low = Math.min(from ?? least ?? 0, least ?? Number.POSITIVE_INFINITY);
  const high = Math.max(to ?? most ?? 1, most ?? Number.NEGATIVE_INFINITY);
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  // No value here is negative.
  return [low === least ? low : Math.max(low - room, Math.min(0, low)), high + room];
}

/** Times of day, with the date where a day begins; dates alone if the ticks are days apart. */
function clockLabels(splits: number[], step: number): string[] {
  const clock = step < MINUTE_MS ? CLOCK_SECONDS : CLOCK;
  let day = "";
  return splits.map((at, index) => {
    const date = DATE.format(at);
    const changed = date !== day && index > 0;
    day = date;
    return step >= DAY_MS || changed ? date : clock.format(at);
  });
}
