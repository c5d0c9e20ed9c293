import type { ReactNode } from "react";
import { classes } from "./classes";
import { Skeleton } from "./states";

interface CardProps {
  title?: ReactNode;
  aside?: ReactNode; // right of the title: a button, a number
  note?: ReactNode; // one line under the title
  children: ReactNode;
  flush?: boolean; // the content reaches the edges
  className?: string;
}

export function Card({ title, aside, note, children, flush = false, className }: CardProps) {
  return (
    <section className={classes("panel min-w-0 overflow-hidden", className)}>
      {(title || aside) && (
        <header className={classes("flex flex-wrap items-start justify-between gap-x-4 gap-y-2 px-5 pt-4", flush && "pb-3")}>
          <div className="min-w-0">
            {title && <h2>{title}</h2>}
            {note && <p className="text-muted text-sm">{note}</p>}
          </div>
          {aside && <div className="flex items-center gap-2">{aside}</div>}
        </header>
      )}
      <div className={flush ? "" : "p-5 pt-4"}>{children}</div>
    </section>
  );
}

/** Names with their values: <Facts><Fact name="Region">…</Fact></Facts>. */
export function Facts({ children, columns = 2 }: { children: ReactNode; columns?: 1 | 2 | 3 | 4 }) {
  const wide = {
    1: "",
    2: "grid-cols-2",
    3: "grid-cols-2 md:grid-cols-3",
    4: "grid-cols-2 lg:grid-cols-4",
  }[columns];
  return <dl className={classes("grid gap-x-6 gap-y-3", wide)}>{children}</dl>;
}

export function Fact({ name, children }: { name: ReactNode; children: ReactNode }) {
  return (
    <div className="min-w-0">
      <dt className="text-muted text-sm">{name}</dt>
      <dd className="break-words">{children}</dd>
    </div>
  );
}

/** One large number. `hint` is a small line under it. */
export function Stat({ name, children, hint }: { name: string; children: ReactNode; hint?: ReactNode }) {
  return (
    <div className="panel min-w-0 px-4 py-3">
      <div className="text-muted text-sm">{name}</div>
      <div className="num break-words font-semibold text-xl leading-tight sm:text-2xl">{children}</div>
      {hint && <div className="break-words text-muted text-sm leading-snug">{hint}</div>}
    </div>
  );
}

/** Statistics side by side, as many as fit. */
export function Stats({ children }: { children: ReactNode }) {
  return <div className="grid grid-cols-2 gap-3 sm:grid-cols-3 xl:grid-cols-6">{children}</div>;
}

/** Statistics that may still load. */
export function StatRow({ stats }: { stats: { name: string; value: ReactNode; hint: string }[] }) {
  return (
    <Stats>
      {stats.map(({ name, value, hint }) => (
        <Stat key={name} name={name} hint={value === undefined ? <Skeleton className="mt-1 h-3.5 w-20" /> : hint}>
          {value === undefined ? <Skeleton className="my-1 h-5 w-14" /> : value}
        </Stat>
      ))}
    </Stats>
  );
}
