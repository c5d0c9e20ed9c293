"use client";
import { CircleCheck, CirclePlay, CircleX, Inbox, type LucideIcon, Pause, Play, PlugZap, Unplug } from "lucide-react";
import { useState } from "react";
import { IconButton } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { type Activity, useActivity } from "./use-activity";

const LOOKS: Record<Activity["what"], { icon: LucideIcon; tone: string }> = {
  submitted: { icon: Inbox, tone: "text-muted" },
  started: { icon: CirclePlay, tone: "text-info" },
  succeeded: { icon: CircleCheck, tone: "text-good" },
  failed: { icon: CircleX, tone: "text-bad" },
  joined: { icon: PlugZap, tone: "text-good" },
  left: { icon: Unplug, tone: "text-warn" },
};

/** Not announced by screen readers, which would never fall silent; they can read the lines on request. */
export function Ticker() {
  const [paused, setPaused] = useState(false);
  const lines = useActivity(paused);
  const label = paused ? "Resume" : "Pause";
  return (
    <Card
      title="Activity"
      note={paused ? "Paused. New events are kept." : "Live events"}
      aside={
        <IconButton label={label} aria-pressed={paused} onClick={() => setPaused(!paused)}>
          {paused ? <Play /> : <Pause />}
        </IconButton>
      }
      flush
      className="flex grow flex-col [&>div]:grow"
    >
      <div
        role="log"
        aria-live="off"
        aria-label="Activity"
        tabIndex={0}
        className="h-full min-h-80 overflow-y-auto border-line border-t contain-size"
      >
        {lines === undefined ? (
          <SkeletonRows rows={7} />
        ) : lines.length === 0 ? (
          <p className="p-5 text-muted">No activity yet. The first job or node will appear here.</p>
        ) : (
          <ul>
            {lines.map((line) => (
              <Line key={line.seq} line={line} />
            ))}
          </ul>
        )}
      </div>
    </Card>
  );
}

function Line({ line }: { line: Activity }) {
  const { icon: Icon, tone } = LOOKS[line.what];
  return (
    <li className="flex items-start gap-3 border-line/70 border-b px-5 py-2 text-sm last:border-b-0">
      <Icon className={classes("mt-0.5 shrink-0", tone)} />
      <span className="min-w-0 flex-1 break-words">{line.sentence}</span>
      <span className="shrink-0 text-muted">
        <Ago ms={line.at_ms} />
      </span>
    </li>
  );
}
