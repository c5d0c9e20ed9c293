"use client";
import { classes } from "@/components/ui/classes";
import { type Connection, useConnection } from "@/lib/live";

const WORDS: Record<Connection, string> = {
  live: "Live",
  connecting: "Connecting…",
  broken: "Reconnecting…",
};

export function ConnectionMark() {
  const connection = useConnection();
  return (
    <p role="status" className="flex items-center gap-2 px-1 text-muted text-sm">
      <span
        aria-hidden="true"
        className={classes("size-2 rounded-full", connection === "live" ? "bg-good" : "animate-pulse bg-warn")}
      />
      {WORDS[connection]}
    </p>
  );
}
