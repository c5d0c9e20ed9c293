"use client";
// The tool bar of a job's output: find, filter, follow, wrap, copy, download.
import { ArrowDown, ArrowUp, Download, Pause, Play, Search } from "lucide-react";
import { useState } from "react";
import { Button, IconButton } from "@/components/ui/button";
import { classes } from "@/components/ui/classes";
import { Copy } from "@/components/ui/copy";
import { Segments } from "@/components/ui/segments";
import { useToast } from "@/components/ui/toast";
import { count } from "@/lib/format";
import { saveFile } from "@/lib/save";
import { wholeLog } from "./use-logs";

export interface LogOptions {
  streams: "both" | "stdout" | "stderr";
  words: string;
  wrap: boolean;
  numbers: boolean;
  follow: boolean;
}

interface LogToolsProps {
  options: LogOptions;
  onChange: (change: Partial<LogOptions>) => void;
  found: number;
  current: number;
  goTo: (step: number) => void;
  jobId: string;
  ended: boolean;
  text: () => string;
}

export function LogTools(props: LogToolsProps) {
  const { options, onChange, jobId, ended, text } = props;
  return (
    <div className="flex flex-wrap items-center gap-2">
      <Find {...props} />
      <Segments
        label="Stream"
        options={[
          { value: "both", label: "Both" },
          { value: "stdout", label: "Output" },
          { value: "stderr", label: "Errors" },
        ]}
        value={options.streams}
        onChange={(streams) => onChange({ streams: streams as LogOptions["streams"] })}
      />
      <Toggle label="Wrap" on={options.wrap} onChange={(wrap) => onChange({ wrap })} />
      <Toggle label="Numbers" on={options.numbers} onChange={(numbers) => onChange({ numbers })} />
      <div className="ml-auto flex items-center gap-1">
        {ended ? (
          <span className="px-2 text-muted text-sm">complete</span>
        ) : (
          <Button small aria-pressed={options.follow} onClick={() => onChange({ follow: !options.follow })}>
            {options.follow ? <Pause /> : <Play />}
            {options.follow ? "Following" : "Follow"}
          </Button>
        )}
        <CopyAll text={text} />
        <SaveAll jobId={jobId} />
      </div>
    </div>
  );
}

function Find({ options, onChange, found, current, goTo }: LogToolsProps) {
  return (
    <search className="flex min-w-0 grow items-center gap-1 sm:max-w-sm">
      <div className="relative min-w-0 grow">
        <Search className="-translate-y-1/2 absolute top-1/2 left-2.5 text-muted" />
        <input
          type="search"
          aria-label="Find in the output"
          placeholder="Find"
          className={classes("control pl-8", options.words && "pr-20", "[&::-webkit-search-cancel-button]:hidden")}
          value={options.words}
          onChange={(event) => onChange({ words: event.target.value })}
          onKeyDown={(event) => {
            if (event.key === "Enter") goTo(event.shiftKey ? -1 : 1);
            if (event.key === "Escape") onChange({ words: "" });
          }}
        />
        <span aria-live="polite" className="num -translate-y-1/2 pointer-events-none absolute top-1/2 right-3 text-muted text-sm">
          {options.words && (found > 0 ? `${count(current + 1)}/${count(found)}` : "none")}
        </span>
      </div>
      <IconButton label="Previous match" disabled={found === 0} onClick={() => goTo(-1)}>
        <ArrowUp />
      </IconButton>
      <IconButton label="Next match" disabled={found === 0} onClick={() => goTo(1)}>
        <ArrowDown />
      </IconButton>
    </search>
  );
}

function Toggle({ label, on, onChange }: { label: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <Button small look={on ? "secondary" : "quiet"} aria-pressed={on} onClick={() => onChange(!on)}>
      {label}
    </Button>
  );
}

/** The text may be long, so it is joined only when the button is about to be used. */
function CopyAll({ text }: { text: () => string }) {
  const [taken, setTaken] = useState("");
  return (
    <span onPointerDownCapture={() => setTaken(text())} onFocusCapture={() => setTaken(text())}>
      <Copy text={taken} label="Copy the output" />
    </span>
  );
}

function SaveAll({ jobId }: { jobId: string }) {
  const toast = useToast();
  const [pending, setPending] = useState(false);
  const save = async () => {
    setPending(true);
    try {
      saveFile(new Blob([await wholeLog(jobId)], { type: "text/plain" }), `${jobId}.log`);
    } catch (error) {
      toast.error(error);
    } finally {
      setPending(false);
    }
  };
  return (
    <IconButton label="Download the output" disabled={pending} onClick={() => void save()}>
      <Download />
    </IconButton>
  );
}
