"use client";
// The activity of the pool, by a long poll that is open while the page is visible.
import { useEffect, useRef, useState } from "react";
import { client, type Schemas } from "@/lib/api/client";
import { pause, untilVisible } from "@/lib/pause";

export type Activity = Schemas["Activity"];

const KEPT = 60;
const WAIT_MS = 20_000;
const RETRY_MS = 3000;

/** The newest first; undefined until the hub has answered once. After a pause, what happened meanwhile follows. */
export function useActivity(paused: boolean): Activity[] | undefined {
  const [lines, setLines] = useState<Activity[]>();
  const cursor = useRef(0);
  useEffect(() => {
    if (paused) return;
    const stop = new AbortController();
    const listen = async () => {
      while (!stop.signal.aborted) {
        await untilVisible(stop.signal);
        const first = cursor.current === 0;
        const query = { after: cursor.current, limit: KEPT, wait_ms: first ? 0 : WAIT_MS };
        const { data } = await client
          .GET("/mesh/activity", { params: { query }, signal: stop.signal })
          .catch(() => ({ data: undefined }));
        if (stop.signal.aborted) return;
        if (data) {
          cursor.current = data.cursor;
          setLines((before = []) => [...data.activity, ...before].slice(0, KEPT));
        }
        // Without any activity yet, the hub answers at once.
        if (!data || (first && data.cursor === 0)) await pause(RETRY_MS, stop.signal);
      }
    };
    void listen();
    return () => stop.abort();
  }, [paused]);
  return lines;
}
