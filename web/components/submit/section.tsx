"use client";
// A part of the form that most people do not need: folded, with a summary of what is set in it.
import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";

interface SectionProps {
  title: string;
  summary: ReactNode;
  isWrong: boolean; // open, because it has an error
  children: ReactNode;
}

export function Section({ title, summary, isWrong, children }: SectionProps) {
  const [open, setOpen] = useState(false);
  return (
    <details
      open={open || isWrong}
      onToggle={(event) => setOpen(event.currentTarget.open)}
      className="group border-line border-t first:border-t-0"
    >
      <summary className="flex list-none items-center gap-2 px-5 py-3 hover:bg-hover">
        <ChevronRight className="shrink-0 text-muted transition-transform group-open:rotate-90" />
        <h3 className="shrink-0">{title}</h3>
        <span className="min-w-0 flex-1 truncate text-right text-muted text-sm">{summary}</span>
      </summary>
      <div className="grid gap-4 px-5 pt-1 pb-5">{children}</div>
    </details>
  );
}
