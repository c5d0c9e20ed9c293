"use client";
// A job's output. Only the visible lines are drawn.
import { useVirtualizer } from "@tanstack/react-virtual";
import { type RefObject, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { classes } from "@/components/ui/classes";
import { Notice } from "@/components/ui/states";
import { asProblem } from "@/lib/api/problem";
import { count } from "@/lib/format";
import { findLines, type LogLine } from "./log-lines";
import { type LogOptions, LogTools } from "./log-tools";
import type { Logs } from "./use-logs";

const LINE_PX = 20; // as in the classes of a line
const AT_END_PX = 40;

interface LogViewProps {
  logs: Logs;
  jobId: string;
  empty: string; // shown while there are no lines
  idle: boolean; // no output is expected soon
}

export function LogView({ logs, jobId, empty, idle }: LogViewProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [options, setOptions] = useState<LogOptions>({ streams: "both", words: "", wrap: false, numbers: false, follow: true });
  const [current, setCurrent] = useState(0);
  const words = useDeferredValue(options.words);
  const { buffer, version } = logs;

  // biome-ignore lint/correctness/useExhaustiveDependencies: the buffer changes in place, with its version
  const lines = useMemo(
    () =>
      options.streams === "both"
        ? buffer.lines
        : buffer.lines.filter((line) => line.stream === options.streams || line.stream === "mark"),
    [buffer, version, options.streams],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: as above
  const found = useMemo(() => findLines(lines, words), [lines, version, words]);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE_PX,
    overscan: 30,
    getItemKey: (index) => lineKey(lines[index]),
  });
  // Wrapped lines have other heights.
  const { wrap } = options;
  // biome-ignore lint/correctness/useExhaustiveDependencies: when it changes
  useEffect(() => virtual.measure(), [wrap, virtual]);
  const follow = options.follow;
  useEffect(() => {
    if (follow && version >= 0 && lines.length > 0) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [follow, version, lines.length, virtual]);
  // During a search, scrolling does not resume following: a match near the end would move away.
  useFollowingByScroll(scroller, follow, (on) => setOptions((before) => ({ ...before, follow: on && !before.words })));
  const hits = useRef(found);
  hits.current = found;
  useEffect(() => {
    const [first] = hits.current;
    if (!words || first === undefined) return;
    setOptions((before) => ({ ...before, follow: false }));
    virtual.scrollToIndex(first, { align: "center" });
  }, [words, virtual]);

  const goTo = (step: number) => {
    if (found.length === 0) return;
    const next = (current + step + found.length) % found.length;
    setCurrent(next);
    setOptions((before) => ({ ...before, follow: false }));
    virtual.scrollToIndex(found[next] as number, { align: "center" });
  };

  return (
    <div className="grid grid-cols-1 gap-3">
      <LogTools
        options={options}
        onChange={(change) => {
          if (change.words !== undefined) setCurrent(0);
          setOptions((before) => ({ ...before, ...change }));
        }}
        found={found.length}
        current={current}
        goTo={goTo}
        jobId={jobId}
        ended={logs.ended}
        text={() => buffer.lines.map((line) => line.text).join("\n")}
      />
      <Words logs={logs} jobId={jobId} />
      <div
        ref={scroller}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label="Output of the job"
        className={classes(
          logs.ended
            ? "max-h-[max(20rem,calc(100dvh-24rem))]"
            : idle && lines.length === 0
              ? "h-24"
              : "h-[max(20rem,calc(100dvh-24rem))]",
          "overflow-auto rounded-control border border-line bg-sunken font-mono text-[0.82rem]",
        )}
      >
        {lines.length === 0 ? (
          <p className="px-4 py-3 text-muted">{empty}</p>
        ) : (
          <div
            className="relative min-w-full"
            style={{ height: virtual.getTotalSize(), width: options.wrap ? "100%" : "max-content" }}
          >
            <div
              className={options.wrap ? "w-full" : "w-max min-w-full"}
              style={{ transform: `translateY(${virtual.getVirtualItems()[0]?.start ?? 0}px)` }}
            >
              {virtual.getVirtualItems().map((item) => (
                <Line
                  key={item.key}
                  index={item.index}
                  measure={options.wrap ? virtual.measureElement : undefined}
                  line={lines[item.index] as LogLine}
                  options={options}
                  words={words}
                  isCurrent={found.length > 0 && found[current] === item.index}
                />
              ))}
            </div>
          </div>
        )}
      </div>
    </div>
  );
}

function lineKey(line: LogLine | undefined): string {
  return line ? `${line.stream === "mark" ? "after " : ""}${line.number}` : "";
}

interface LineProps {
  line: LogLine;
  index: number;
  measure: ((node: Element | null) => void) | undefined;
  options: LogOptions;
  words: string;
  isCurrent: boolean;
}

function Line({ line, index, measure, options, words, isCurrent }: LineProps) {
  if (line.stream === "mark") {
    return (
      <div ref={measure} data-index={index} className="flex h-[20px] items-center gap-3 px-4 font-sans text-muted text-sm">
        {line.text} <span aria-hidden="true" className="h-px grow bg-line" />
      </div>
    );
  }
  const isError = line.stream === "stderr";
  return (
    <div
      ref={measure}
      data-index={index}
      className={classes(
        "flex min-h-[20px] pr-4 leading-[20px]",
        isError && "bg-warn-soft/60",
        isCurrent && "outline-2 outline-accent -outline-offset-2",
      )}
    >
      {options.numbers && (
        <span className="num w-16 shrink-0 select-none pr-3 text-right text-muted" aria-hidden="true">
          {line.number}
        </span>
      )}
      {/* The stream is marked by a word and a bar, besides the colour. */}
      <span
        className={classes(
          "w-9 shrink-0 select-none border-l-4 pl-1.5 text-[0.7rem]",
          isError ? "border-warn text-warn" : "border-transparent",
        )}
      >
        {isError && (
          <abbr title="standard error" className="no-underline">
            err
          </abbr>
        )}
      </span>
      <bdi className={classes("min-w-0 grow", options.wrap ? "whitespace-pre-wrap break-all" : "whitespace-pre")}>
        <Marked text={line.text} words={words} />
      </bdi>
    </div>
  );
}

function Marked({ text, words }: { text: string; words: string }) {
  if (!words) return text || " ";
  const lower = text.toLowerCase();
  const wanted = words.toLowerCase();
  const parts: React.ReactNode[] = [];
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0 && parts.length < 200; at = lower.indexOf(wanted, from)) {
    parts.push(
      text.slice(from, at),
      <mark key={at} className="bg-accent text-accent-ink">
        {text.slice(at, at + words.length)}
      </mark>,
    );
    from = at + words.length;
  }
  return parts.length > 0 ? [...parts, text.slice(from)] : text || " ";
}

function Words({ logs, jobId }: { logs: Logs; jobId: string }) {
  const { buffer, error } = logs;
  return (
    <>
      {error !== null && <Notice tone="warn">{asProblem(error).detail}</Notice>}
      {buffer.dropped > 0 && (
        <Notice>
          The first {count(buffer.dropped)} lines are not shown on this page. Download the output to see everything that the hub
          has.
        </Notice>
      )}
      {buffer.sealed && (
        <Notice>
          The output is sealed: only your key opens it. On a machine that has it: <code>pool jobs logs {jobId}</code>
        </Notice>
      )}
    </>
  );
}

/** Scrolling up stops following; scrolling to the end resumes it. */
function useFollowingByScroll(scroller: RefObject<HTMLDivElement | null>, follow: boolean, set: (on: boolean) => void): void {
  const latest = useRef({ follow, set });
  latest.current = { follow, set };
  useEffect(() => {
    const box = scroller.current;
    if (!box) return;
    let before = box.scrollTop;
    const scrolled = () => {
      const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < AT_END_PX;
      const wentUp = box.scrollTop < before - 2;
      before = box.scrollTop;
      if (latest.current.follow && wentUp && !isAtEnd) latest.current.set(false);
      else if (!latest.current.follow && !wentUp && isAtEnd) latest.current.set(true);
    };
    box.addEventListener("scroll", scrolled, { passive: true });
    return () => box.removeEventListener("scroll", scrolled);
  }, [scroller]);
}
