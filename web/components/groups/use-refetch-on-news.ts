"use client";
// A busy group has hundreds of events a second; what shows it is asked again at a pace that the hub does not feel.
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { useNews, useOnConnect } from "@/lib/live";

const LEAST_MS = 1500;
const SHARE = 4; // of the time, at most one part in five goes into asking

/** Asks a query again after events of the group, and when listening begins. */
export function useRefetchOnNews(groupId: string, queryKey: QueryKey): void {
  const queries = useQueryClient();
  const state = useRef({ dirty: false, busy: false, timer: undefined as ReturnType<typeof setTimeout> | undefined });
  const latest = useRef({ queryKey, exact: true });
  latest.current = { queryKey, exact: true };
  const run = useRef(async () => {
    const now = state.current;
    if (now.busy) return;
    now.timer = undefined;
    now.busy = true;
    // What is on its way is of before the event, or another page of the list: it is waited for, and then asked again.
    now.dirty = queries.isFetching(latest.current) > 0;
    const begun = performance.now();
    await queries.refetchQueries(latest.current, { cancelRefetch: false });
    now.busy = false;
    const pause = Math.max(LEAST_MS, SHARE * (performance.now() - begun));
    now.timer = setTimeout(() => {
      now.timer = undefined;
      if (now.dirty) void run.current();
    }, pause);
  });
  const touch = () => {
    const now = state.current;
    now.dirty = true;
    // The first of a burst is waited for a little: others come with it.
    if (!now.busy && now.timer === undefined) now.timer = setTimeout(() => void run.current(), 300);
  };
  useNews((news) => {
    if (news.partial || news.group_ids?.includes(groupId)) touch();
  });
  useOnConnect(touch);
  useEffect(() => {
    const now = state.current;
    return () => clearTimeout(now.timer);
  }, []);
}
