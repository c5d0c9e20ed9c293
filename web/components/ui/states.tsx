"use client";
// What a page shows while it loads, when there is nothing yet, and when something went wrong.
import { CircleAlert, Inbox, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { asProblem, errorToShow, type QueryStatus } from "@/lib/api/problem";
import { Button } from "./button";
import { classes } from "./classes";

/** Takes the place of something that loads. */
export function Skeleton({ className }: { className?: string }) {
  return (
    <span
      aria-hidden="true"
      className={classes("skeleton block animate-pulse rounded-md bg-line/70", className ?? "h-5 w-full")}
    />
  );
}

export function SkeletonRows({ rows = 6 }: { rows?: number }) {
  return (
    <div role="status" aria-label="Loading" className="grid gap-4 p-5">
      {Array.from({ length: rows }, (_, row) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: they are all the same
        <Skeleton key={row} />
      ))}
    </div>
  );
}

interface EmptyProps {
  title: string;
  children?: ReactNode; // what to do next, with a button or a command
  icon?: LucideIcon;
}

export function Empty({ title, children, icon: Icon = Inbox }: EmptyProps) {
  return (
    <div className="mx-auto flex max-w-xl flex-col items-center gap-3 px-5 py-12 text-center">
      <Icon size={28} className="text-muted" />
      <p className="font-medium">{title}</p>
      {children && <div className="grid w-full gap-3 text-muted">{children}</div>}
    </div>
  );
}

/** The hub's explanation, and a button to try again. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const problem = asProblem(error);
  return (
    <div role="alert" className="mx-auto flex max-w-xl flex-col items-center gap-3 px-5 py-10 text-center">
      <CircleAlert size={28} className="text-bad" />
      <p className="font-medium">{problem.title}</p>
      <p className="break-words text-muted">{problem.detail}</p>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

/** A highlighted sentence: a note, a warning, a refusal. */
export function Notice({ tone = "info", children }: { tone?: "info" | "warn" | "bad" | "good"; children: ReactNode }) {
  const tones = {
    info: "bg-info-soft text-info",
    warn: "bg-warn-soft text-warn",
    bad: "bg-bad-soft text-bad",
    good: "bg-good-soft text-good",
  };
  return (
    <div role={tone === "bad" ? "alert" : "status"} className={classes("break-words rounded-control px-4 py-2.5", tones[tone])}>
      {children}
    </div>
  );
}

export interface Query<T> extends QueryStatus {
  data: T | undefined;
  refetch: () => unknown;
}

/** The result of a query, its error, or a skeleton. A result stays while it is fetched again, even if that fails. */
export function QueryView<T>({
  query,
  skeleton,
  children,
}: {
  query: Query<T>;
  skeleton?: ReactNode;
  children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  const error = errorToShow(query);
  if (error) return <Failure error={error} retry={() => void query.refetch()} />;
  return <>{skeleton ?? <SkeletonRows />}</>;
}
