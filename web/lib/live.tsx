"use client";
// What happens at the hub, as it happens: an event names what it is about, and whatever shows that is asked again.
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useRef, useState } from "react";
import { hubUrl, type Schemas } from "./api/client";
import { useSession } from "./session";

export type HubEvent = Schemas["EventView"];
export type Connection = "connecting" | "live" | "broken";

const GATHER_MS = 300; // events of a busy moment become one round of questions
const ROUND_MAX_MS = 5000; // a round may have a long poll in it
const RETRY_MIN_MS = 1000;
const RETRY_MAX_MS = 15_000;

interface Live {
  connection: Connection;
  listen: (heard: (event: HubEvent) => void) => () => void;
}

const Context = createContext<Live>({ connection: "connecting", listen: () => () => {} });

export function LiveProvider({ children }: { children: React.ReactNode }) {
  const queries = useQueryClient();
  const { account } = useSession();
  const listeners = useRef(new Set<(event: HubEvent) => void>());
  const [connection, setConnection] = useState<Connection>("connecting");
  const accountId = account?.id;

  useEffect(() => {
    if (!accountId) return;
    return follow(queries, setConnection, (event) => {
      for (const heard of listeners.current) heard(event);
    });
  }, [accountId, queries]);

  const [live] = useState(() => ({
    listen: (heard: (event: HubEvent) => void) => {
      listeners.current.add(heard);
      return () => void listeners.current.delete(heard);
    },
  }));
  return <Context.Provider value={{ connection, listen: live.listen }}>{children}</Context.Provider>;
}

/** Calls `heard` with every event that concerns the signed-in account; all events for administrators. */
export function useEvents(heard: (event: HubEvent) => void): void {
  const { listen } = useContext(Context);
  const latest = useRef(heard);
  latest.current = heard;
  useEffect(() => listen((event) => latest.current(event)), [listen]);
}

export function useConnection(): Connection {
  return useContext(Context).connection;
}

/** One stream while the page is seen: a browser allows six connections to a hub, and tabs are many. */
function follow(queries: QueryClient, tell: (connection: Connection) => void, heard: (event: HubEvent) => void) {
  let source: EventSource | null = null;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let wait = RETRY_MIN_MS;
  let missed = false; // something may have happened that was not heard
  const gathered = gatherer(queries);

  const open = () => {
    clearTimeout(retry);
    source?.close();
    tell("connecting");
    source = new EventSource(hubUrl(["events", "stream"], { named: "false" }));
    source.onopen = () => {
      tell("live");
      wait = RETRY_MIN_MS;
      if (missed) void queries.invalidateQueries();
      missed = false;
    };
    source.onmessage = (message) => {
      const event = JSON.parse(message.data) as HubEvent;
      gathered.add(event);
      heard(event);
    };
    source.onerror = () => {
      // The browser's own retries would go on after a 401; these ask who is signed in, first.
      source?.close();
      missed = true;
      tell("broken");
      void queries.invalidateQueries({ queryKey: ["get", "/hub"] });
      retry = setTimeout(open, wait);
      wait = Math.min(wait * 2, RETRY_MAX_MS);
    };
  };
  const close = () => {
    clearTimeout(retry);
    source?.close();
    missed = true;
  };
  const seen = () => (document.hidden ? close() : open());

  document.addEventListener("visibilitychange", seen);
  if (!document.hidden) open();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    gathered.stop();
    close();
  };
}

function gatherer(queries: QueryClient) {
  let words = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let ended = false;
  // One round after the other: a question that is asked again before it is answered is never answered in a busy pool.
  const ask = async () => {
    const now = words;
    words = new Set();
    const asked = queries.invalidateQueries({ predicate: (query) => concerns(query.queryKey, now) });
    await Promise.race([asked, new Promise((passed) => setTimeout(passed, ROUND_MAX_MS))]);
    timer = words.size > 0 && !ended ? setTimeout(ask, GATHER_MS) : undefined;
  };
  return {
    add(event: HubEvent) {
      for (const word of touched(event)) words.add(word);
      timer ??= setTimeout(ask, GATHER_MS);
    },
    stop: () => {
      ended = true;
      clearTimeout(timer);
    },
  };
}

/** The ids an event names, and the first words of the paths that list such things. */
function touched(event: HubEvent): string[] {
  const lists: [string | null | undefined, string[]][] = [
    [event.job_id, ["/jobs", "/groups", "/queue", "/credits"]],
    [event.group_id, ["/groups"]],
    [event.node_id, ["/nodes", "/queue"]],
  ];
  const kind = event.action.split(".")[0];
  const words = [`/${kind}`, `/${kind}s`]; // some are lists already: credits, prices
  if (kind === "payout" || kind === "approval") words.push("/credits", "/payouts");
  for (const [id, paths] of lists) {
    if (id) words.push(id, ...paths);
  }
  return words;
}

/** A query of one thing (an id in its path) is asked again for that id alone; a list for any of its kind. */
function concerns(key: readonly unknown[], words: Set<string>): boolean {
  const [, path, init] = key as [string, string, { params?: { path?: Record<string, string> } } | undefined];
  if (typeof path !== "string") return false;
  const ids = Object.values(init?.params?.path ?? {});
  if (ids.length > 0) return ids.some((id) => words.has(id));
  return words.has(`/${path.split("/")[1]}`);
}
