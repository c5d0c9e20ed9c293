"use client";
import { useClock } from "@/lib/clock";
import { ago, credits, duration, moment, shortId } from "@/lib/format";
import { Copy } from "./copy";

interface MoneyProps {
  micro: number;
  signed?: boolean; // gains in green and with a plus
  unit?: boolean;
  exact?: boolean; // every digit, where amounts add up
}

/** Microcredits, with the exact amount on hover. */
export function Money({ micro, signed = false, unit = false, exact = false }: MoneyProps) {
  const gain = signed && micro > 0;
  return (
    <span className={`num whitespace-nowrap ${gain ? "text-good" : ""}`} title={`${credits(micro, { exact: true })} credits`}>
      {gain ? "+" : ""}
      {credits(micro, { exact })}
      {unit && <span className="text-muted"> cr</span>}
    </span>
  );
}

/** "3 min ago", kept current; the exact time on hover. */
export function Ago({ ms }: { ms: number | null | undefined }) {
  const text = useClock((now) => ago(ms ?? 0, now));
  if (ms == null) return <span className="text-muted">never</span>;
  if (text === null) return <span className="inline-block w-16">&nbsp;</span>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={moment(ms)} className="num whitespace-nowrap">
      {text}
    </time>
  );
}

export function Moment({ ms }: { ms: number }) {
  return (
    <time dateTime={new Date(ms).toISOString()} className="num">
      {moment(ms)}
    </time>
  );
}

/** A duration; until now if it has no end. */
export function Took({ fromMs, toMs }: { fromMs: number | null | undefined; toMs: number | null | undefined }) {
  const text = useClock((now) => duration((toMs ?? now) - (fromMs ?? 0)));
  if (fromMs == null) return <span className="text-muted">–</span>;
  return <span className="num whitespace-nowrap">{text}</span>;
}

export function Id({ id }: { id: string }) {
  return (
    <span className="inline-flex items-center gap-1 whitespace-nowrap font-mono text-sm" title={id}>
      {shortId(id)}
      <Copy text={id} label="Copy the ID" />
    </span>
  );
}
