"use client";
// The output of a job, by a long poll while the page is visible.
import { useEffect, useRef, useState } from "react";
import { answerOf, client } from "@/lib/api/client";
import { asProblem, isTransient } from "@/lib/api/problem";
import { pause, untilVisible } from "@/lib/pause";
import { LogBuffer, type LogChunk } from "./log-lines";

const PAGE = 500;
const WAIT_MS = 20_000;
const RETRY_MS = 2000;
const DRAW_EVERY_MS = 100;

export interface Logs {
  buffer: LogBuffer;
  version: number; // changes with the buffer
  ended: boolean;
  error: unknown;
}

/** Another `generation` starts from the beginning, as when the hub has chosen which run's output counts. */
export function useLogs(jobId: string, generation: string): Logs {
  const buffer = useRef(new LogBuffer());
  const [logs, setLogs] = useState({ version: 0, ended: false, error: null as unknown });

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new generation begins again
  useEffect(() => {
    const over = new AbortController();
    void follow(jobId, over.signal, (fresh, state) => {
      buffer.current = fresh;
      setLogs((before) => ({ ...state, version: before.version + 1 }));
    });
    return () => over.abort();
  }, [jobId, generation]);

  return { buffer: buffer.current, ...logs };
}

type OnUpdate = (buffer: LogBuffer, state: { ended: boolean; error: unknown }) => void;

async function follow(jobId: string, signal: AbortSignal, onUpdate: OnUpdate): Promise<void> {
  const buffer = new LogBuffer();
  let cursor = 0;
  let drawn = 0;
  while (!signal.aborted) {
    await untilVisible(signal);
    const asking = untilHidden(signal);
    try {
      const page = await readPage(jobId, cursor, { signal: asking.signal, waitMs: WAIT_MS });
      buffer.add(page.chunks);
      cursor = page.cursor;
      const full = page.chunks.length === PAGE;
      // Drawing every page of a long log would take longer than fetching it.
      if (!full || performance.now() - drawn > DRAW_EVERY_MS) {
        onUpdate(buffer, { ended: page.ended, error: null });
        drawn = performance.now();
      }
      if (page.ended) return;
    } catch (error) {
      if (signal.aborted) return;
      if (asking.signal.aborted) continue;
      onUpdate(buffer, { ended: false, error });
      const problem = asProblem(error);
      if (!isTransient(problem)) return;
      await pause((problem.retry_after_s ?? 0) * 1000 || RETRY_MS, signal);
    } finally {
      asking.stop();
    }
  }
}

async function readPage(jobId: string, after: number, { signal, waitMs }: { signal?: AbortSignal; waitMs: number }) {
  return answerOf(
    client.GET("/jobs/{job_id}/logs", {
      params: { path: { job_id: jobId }, query: { after, limit: PAGE, wait_ms: waitMs } },
      ...(signal && { signal }),
    }),
  );
}

/** Everything that the hub has, including what the page has dropped. */
export async function wholeLog(jobId: string): Promise<string> {
  const texts: string[] = [];
  let cursor = 0;
  for (;;) {
    const page = await readPage(jobId, cursor, { waitMs: 0 });
    texts.push(...page.chunks.map((chunk: LogChunk) => chunk.text));
    if (page.chunks.length < PAGE) return texts.join("");
    cursor = page.cursor;
  }
}

/** A hidden tab holds no connection: a browser has six for a hub. */
function untilHidden(signal: AbortSignal) {
  const asking = new AbortController();
  const check = () => (document.hidden || signal.aborted) && asking.abort();
  document.addEventListener("visibilitychange", check);
  signal.addEventListener("abort", check);
  return {
    signal: asking.signal,
    stop() {
      document.removeEventListener("visibilitychange", check);
      signal.removeEventListener("abort", check);
    },
  };
}
