"use client";
import { Search, X } from "lucide-react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { classes } from "@/components/ui/classes";
import type { Option } from "@/components/ui/field";
import { Segments } from "@/components/ui/segments";
import { SPANS } from "@/components/ui/time-range";
import { shortId } from "@/lib/format";
import { useRole } from "@/lib/session";
import { useDebouncedText } from "@/lib/use-debounced-text";
import { setParams, useParam, useParamState } from "@/lib/use-params";
import { clearFilters, KINDS, STATES } from "./use-job-filters";

const TIMES = Object.entries(SPANS).map(([value, { label }]) => ({ value, label }));
const OWNERS = [
  { value: "mine", label: "Mine" },
  { value: "", label: "All accounts" },
];

export function JobFilterBar({ states, some }: { states: string[]; some: boolean }) {
  const [whose, setWhose] = useParam("whose");
  return (
    <div className="grid grid-cols-1 gap-3">
      <div className="flex flex-wrap items-end gap-2">
        <SearchField />
        <Choice name="kind" label="Kind" all="Any kind" options={KINDS.map((kind) => ({ value: kind, label: kind }))} />
        <Choice name="since" label="Submitted" all="Any time" options={TIMES} />
        {useRole("admin") && (
          <Segments label="Whose jobs" options={OWNERS} value={whose === "mine" ? "mine" : ""} onChange={setWhose} />
        )}
      </div>
      <div className="flex flex-wrap items-center gap-1.5">
        <States chosen={states} />
        <LinkedFilter name="group" />
        <LinkedFilter name="node" />
        {some && (
          <Button small look="quiet" onClick={clearFilters}>
            Clear all
          </Button>
        )}
      </div>
    </div>
  );
}

function States({ chosen }: { chosen: string[] }) {
  const toggle = (state: string) => {
    // From the address: a second click may come before React has drawn the first.
    const now = new URLSearchParams(window.location.search).getAll("state");
    setParams({ state: now.includes(state) ? now.filter((one) => one !== state) : [...now, state] });
  };
  return (
    <fieldset aria-label="States" className="flex flex-wrap gap-1.5">
      {STATES.map((state) => (
        <button
          key={state}
          type="button"
          aria-pressed={chosen.includes(state)}
          onClick={() => toggle(state)}
          className={classes(
            "min-h-8 rounded-full border px-3 font-medium text-sm",
            chosen.includes(state)
              ? "border-accent bg-accent-soft text-accent"
              : "border-line bg-surface text-muted hover:border-line-strong hover:text-ink",
          )}
        >
          {state}
        </button>
      ))}
    </fieldset>
  );
}

function SearchField() {
  const [asked, ask] = useParam("q");
  const [typed, setTyped] = useDebouncedText(asked, ask);
  return (
    <div className="relative min-w-48 grow sm:max-w-xs">
      <Search className="-translate-y-1/2 absolute top-1/2 left-3 text-muted" />
      <input
        type="search"
        aria-label="Name, key or ID of a job"
        placeholder="Name, key or ID"
        maxLength={200}
        className="control pl-9"
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
      />
    </div>
  );
}

function Choice({ name, label, all, options }: { name: string; label: string; all: string; options: Option[] }) {
  const [value, setValue] = useParamState(name);
  return (
    <select aria-label={label} className="control w-auto" value={value} onChange={(event) => setValue(event.target.value)}>
      {[{ value: "", label: all }, ...options].map((option) => (
        <option key={option.value} value={option.value}>
          {option.label}
        </option>
      ))}
    </select>
  );
}

/** A filter that a link from another page has set. It can only be removed. */
function LinkedFilter({ name }: { name: "group" | "node" }) {
  const [value, setValue] = useParam(name);
  if (!value) return null;
  return (
    <Badge tone="accent" title={value}>
      {name} {shortId(value)}
      <button type="button" aria-label={`Remove the ${name} filter`} className="-mr-1" onClick={() => setValue("")}>
        <X />
      </button>
    </Badge>
  );
}
