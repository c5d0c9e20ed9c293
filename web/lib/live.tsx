"use client";
// News of the hub as they happen: they name what changed, and every query that shows it is fetched again.
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useRef, useState } from "react";
import { hubUrl, type Schemas } from "./api/client";
import { refetchScheduler } from "./refetch-scheduler";
import { useSession } from "./session";

type News = Schemas["News"];
export type Connection = "connecting" | "live" | "broken";

const RETRY_MIN_MS = 1000;
const RETRY_MAX_MS = 15_000;
const STEADY_MS = 10_000; // after a stream that lasted so long, the next retry comes at once
const SILENT_MS = 4000; // without any answer for so long, the hub is away; once connected, it tells how often it sends something

interface Live {
  connection: Connection;
  listen: (onNews: (news: News) => void) => () => void;
}

const Context = createContext<Live>({ connection: "connecting", listen: () => () => {} });

export function LiveProvider({ children }: { children: React.ReactNode }) {
  const queries = useQueryClient();
  const { account } = useSession();
  const listeners = useRef(new Set<(news: News) => void>());
  const [connection, setConnection] = useState<Connection>("connecting");
  const accountId = account?.id;

  useEffect(() => {
    if (!accountId) return;
    return openStream(queries, setConnection, (news) => {
      for (const onNews of listeners.current) onNews(news);
    });
  }, [accountId, queries]);

  const [live] = useState(() => ({
    listen: (onNews: (news: News) => void) => {
      listeners.current.add(onNews);
      return () => void listeners.current.delete(onNews);
    },
  }));
  return <Context.Provider value={{ connection, listen: live.listen }}>{children}</Context.Provider>;
}

/** Calls `onNews` with what changed in the signed-in account; for administrators, in any account. */
export function useNews(onNews: (news: News) => void): void {
  const { listen } = useContext(Context);
  const latest = useRef(onNews);
  latest.current = onNews;
  useEffect(() => listen((news) => latest.current(news)), [listen]);
}

export function useConnection(): Connection {
  return useContext(Context).connection;
}

/** One stream while the page is visible: a browser allows six connections to a hub, for all its tabs. */
function openStream(queries: QueryClient, setConnection: (connection: Connection) => void, onNews: (news: News) => void) {
  let source: EventSource | null = null;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let wait = RETRY_MIN_MS;
  let missed = true; // something may have happened that this page was not told
  let openedAt = 0;
  let watchdog: ReturnType<typeof setTimeout> | undefined;
  let silentMs = SILENT_MS;
  const scheduler = refetchScheduler(queries, isAffected);

  // A hub that hangs keeps its connections open, but is silent.
  const restartWatchdog = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(lost, silentMs);
  };
  const lost = () => {
    clearTimeout(watchdog);
    source?.close();
    missed = true;
    setConnection("broken");
    // EventSource would retry even after a 401. This first checks who is signed in.
    void queries.invalidateQueries({ queryKey: ["get", "/hub"] });
    if (openedAt > 0 && performance.now() - openedAt > STEADY_MS) wait = RETRY_MIN_MS;
    openedAt = 0;
    // So that after a restart not all pages connect at the same moment.
    retry = setTimeout(open, wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, RETRY_MAX_MS);
  };
  const open = () => {
    clearTimeout(retry);
    source?.close();
    source = new EventSource(hubUrl(["events", "news"]));
    restartWatchdog();
    source.onopen = () => {
      restartWatchdog();
      setConnection("live");
      openedAt = performance.now();
      if (missed) scheduler.refetchAfterBreak();
      missed = false;
    };
    source.addEventListener("alive", ({ data }) => {
      silentMs = 2 * Number(data) + 1000;
      restartWatchdog();
    });
    source.onmessage = (message) => {
      restartWatchdog();
      const news = JSON.parse(message.data) as News;
      if (news.partial) scheduler.refetchAll();
      else scheduler.refetchNamed(changedNames(news));
      onNews(news);
    };
    source.onerror = lost;
  };
  const close = () => {
    clearTimeout(retry);
    clearTimeout(watchdog);
    source?.close();
    missed = true;
  };
  const onVisibility = () => {
    if (document.hidden) return close();
    setConnection("connecting");
    open();
  };

  document.addEventListener("visibilitychange", onVisibility);
  if (!document.hidden) onVisibility();
  return () => {
    document.removeEventListener("visibilitychange", onVisibility);
    scheduler.stop();
    close();
  };
}

/** The ids that news name, and the first part of the paths that list such things. */
function changedNames(news: News): string[] {
  const lists: [string[] | undefined, string[]][] = [
    [news.job_ids, ["/jobs", "/groups", "/queue", "/credits"]],
    [news.group_ids, ["/groups"]],
    [news.node_ids, ["/nodes", "/queue"]],
  ];
  const words = news.kinds.flatMap((kind) => [`/${kind}`, `/${kind}s`]); // some kinds are plural already: credits, prices
  if (news.kinds.includes("payout") || news.kinds.includes("approval")) words.push("/credits", "/payouts");
  for (const [ids = [], paths] of lists) {
    if (ids.length > 0) words.push(...ids, ...paths);
  }
  return words;
}

/** A query about one thing depends on its id, a list on anything of its kind; every piece of news is about events. */
function isAffected(key: readonly unknown[], names: Set<string>): boolean {
  const [, path, init] = key as [string, string, { params?: { path?: Record<string, string>; query?: { job_id?: string } } }?];
  if (typeof path !== "string") return false;
  const { path: ids = {}, query } = init?.params ?? {};
  if (path === "/events") return !query?.job_id || names.has(query.job_id);
  const one = Object.values(ids);
  return one.length > 0 ? one.some((id) => names.has(id)) : names.has(`/${path.split("/")[1]}`);
}
