"use client";
import { Check, Minus, TriangleAlert } from "lucide-react";
import { useEffect, useState } from "react";
import { Spinner } from "@/components/ui/button";
import { classes } from "@/components/ui/classes";
import { Ago } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { JoinHelp } from "./join-help";

type Step = Schemas["JoinStep"];

const LONG_MS = 20_000; // after so long, help is shown

const LOOKS = {
  done: { word: "done", icon: <Check />, look: "bg-good-soft text-good" },
  warning: { word: "done, with a warning", icon: <TriangleAlert />, look: "bg-warn-soft text-warn" },
  skipped: { word: "skipped", icon: <Minus />, look: "bg-sunken text-muted" },
  waiting: { word: "waiting", icon: null, look: "border border-line-strong/60 text-muted" },
};

export function JoinSteps({ steps }: { steps: Step[] }) {
  const current = steps.find((step) => step.state === "waiting")?.name;
  return (
    <ol className="grid gap-4" aria-live="polite">
      {steps.map((step) => (
        <OneStep key={step.name} step={step} current={step.name === current} />
      ))}
    </ol>
  );
}

function OneStep({ step, current }: { step: Step; current: boolean }) {
  const { word, icon, look } = LOOKS[step.state];
  return (
    <li className="grid grid-cols-[1.75rem_minmax(0,1fr)] gap-x-3" data-step={step.name} data-state={step.state}>
      <span className={classes("mt-0.5 grid size-6 place-items-center rounded-full", look)}>
        {current ? <Spinner /> : icon}
        <span className="sr-only">{word}: </span>
      </span>
      <div className="min-w-0">
        <p className="flex flex-wrap justify-between gap-x-4">
          <span className={classes("font-medium", step.state === "waiting" && !current && "text-muted")}>{step.title}</span>
          {step.at_ms != null && (
            <span className="text-muted text-sm">
              <Ago ms={step.at_ms} />
            </span>
          )}
        </p>
        <p className="break-words text-muted">{step.detail}</p>
        {(current || step.state === "warning") && <Trouble step={step} />}
      </div>
    </li>
  );
}

/** Opens by itself when the step takes long. */
function Trouble({ step }: { step: Step }) {
  const [open, setOpen] = useState(step.state === "warning");
  useEffect(() => {
    const timer = setTimeout(() => setOpen(true), LONG_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)} className="mt-1.5">
      <summary className="text-accent text-sm">{step.state === "warning" ? "What to do" : "Taking long?"}</summary>
      <div className="mt-2 rounded-control bg-sunken p-3 text-sm">
        <JoinHelp name={step.name} />
      </div>
    </details>
  );
}
