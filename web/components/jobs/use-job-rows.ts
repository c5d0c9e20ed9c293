"use client";
// The list of jobs, kept true row by row: an event asks again for the part of the list that it is in, never for all of it.
import { useCallback, useEffect, useRef, useState } from "react";
import { client } from "@/lib/api/client";
import { asProblem, isTransient } from "@/lib/api/problem";
import { useNews, useOnConnect } from "@/lib/live";
import type { More } from "@/lib/paging";
import { type Job, PAGE, Rows } from "./job-rows";
import type { JobQuery } from "./use-job-filters";

const GATHER_MS = 400;
const SHARE = 4; // of the time, at most one part in five goes into asking
const PARTS_AT_ONCE = 4;
const RETRY_MS = 3000;
const PROGRESS_MS = 5000; // progress is told without events

interface JobRows {
  rows: Job[];
  loaded: boolean; // there is something to show…
  stale: boolean; // …but of the filters before
  error: unknown;
  more: More;
  refresh: () => void;
}

export function useJobRows(query: JobQuery): JobRows {
  const key = JSON.stringify(query);
  const held = useRef({ key: "", rows: new Rows() });
  const touched = useRef(new Set<string>());
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const busy = useRef(false); // what happens meanwhile is asked for in the next round
  const freeAt = useRef(0);
  const again = useRef(() => {});
  const shown = useRef<Job[] | null>(null);
  const [state, setState] = useState({ version: 0, loadedKey: "", error: null as unknown });
  const [further, setFurther] = useState({ loading: false, error: null as unknown });

  const ask = useCallback(
    async (
      upper: string | null,
      failed = (error: unknown) => setState((before) => ({ ...before, version: before.version + 1, error })),
    ) => {
      try {
        const after = upper === null ? {} : { after: upper };
        const { data, error } = await client.GET("/jobs", { params: { query: { ...query, ...after, limit: PAGE } } });
        if (held.current.key !== key) return;
        if (data === undefined) throw error;
        held.current.rows.take(data, upper);
        setState((before) => ({ version: before.version + 1, loadedKey: key, error: null }));
      } catch (error) {
        if (held.current.key === key) failed(error);
      }
    },
    [key, query],
  );
  const load = async () => {
    setFurther({ loading: true, error: null });
    let why: unknown = null;
    await ask(held.current.rows.next, (error) => {
      why = asProblem(error);
    });
    if (held.current.key === key) setFurther({ loading: false, error: why });
  };

  const soon = useCallback(() => {
    if (busy.current) return;
    timer.current ??= setTimeout(() => again.current(), Math.max(GATHER_MS, freeAt.current - performance.now()));
  }, []);
  const freshen = useCallback(async () => {
    clearTimeout(timer.current);
    timer.current = undefined;
    const ids = touched.current;
    touched.current = new Set();
    const parts = [...held.current.rows.partsWith(ids)].filter(([upper]) => upper !== null);
    for (const [, later] of parts.slice(PARTS_AT_ONCE)) for (const id of later) touched.current.add(id);
    busy.current = true;
    const begun = performance.now();
    await Promise.all([ask(null), ...parts.slice(0, PARTS_AT_ONCE).map(([upper]) => ask(upper))]);
    busy.current = false;
    // The pause follows how long the answers took: a search in many jobs is not asked for all the time.
    if (held.current.key === key) freeAt.current = performance.now() + SHARE * (performance.now() - begun);
    if (touched.current.size > 0) soon();
  }, [ask, key, soon]);
  again.current = freshen;

  useEffect(() => {
    held.current = { key, rows: new Rows() };
    freeAt.current = 0;
    setFurther({ loading: false, error: null });
    void ask(null);
    return () => {
      clearTimeout(timer.current);
      timer.current = undefined;
    };
  }, [ask, key]);

  useNews((news) => {
    const named = news.job_ids ?? [];
    const ids = news.partial ? [...named, ...held.current.rows.jobs.map((job) => job.id)] : named;
    if (ids.length === 0) return;
    for (const id of ids) touched.current.add(id);
    soon();
  });
  const refresh = useCallback(() => {
    for (const job of held.current.rows.jobs) touched.current.add(job.id);
    void freshen();
  }, [freshen]);
  useOnConnect(refresh);
  const failed = state.error !== null && isTransient(asProblem(state.error));
  // biome-ignore lint/correctness/useExhaustiveDependencies: each failure waits anew, so that no two are asked at once
  useEffect(() => {
    if (!failed) return;
    const retry = setTimeout(() => void ask(null), RETRY_MS);
    return () => clearTimeout(retry);
  }, [failed, state.version, ask]);

  const { rows } = held.current;
  const isThis = held.current.key === key && state.loadedKey === key;
  if (isThis) shown.current = rows.jobs;
  const runs = isThis && rows.jobs.slice(0, PAGE).some((job) => job.state === "running");
  useEffect(() => {
    if (!runs) return;
    const every = setInterval(() => !document.hidden && soon(), PROGRESS_MS);
    return () => clearInterval(every);
  }, [runs, soon]);
  return {
    rows: shown.current ?? [],
    loaded: shown.current !== null,
    stale: !isThis,
    error: state.error,
    more: { has: isThis && rows.next !== null, ...further, load: () => void load() },
    refresh,
  };
}
