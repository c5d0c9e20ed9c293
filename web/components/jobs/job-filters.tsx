"use client";
// The filters of the list of jobs. What is chosen is in the address.
import { Search, X } from "lucide-react";
import { useSearchParams } from "next/navigation";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { classes } from "@/components/ui/classes";
import { Segments } from "@/components/ui/segments";
import { shortId } from "@/lib/format";
import { useAccount } from "@/lib/session";
import { useDebouncedText } from "@/lib/use-debounced-text";
import { setParams, useParam, useParamState } from "@/lib/use-params";
import { FILTERS, KINDS, SPANS, STATES } from "./use-job-filters";

export function JobFilterBar({ states, some }: { states: string[]; some: boolean }) {
  const account = useAccount();
  const [whose, setWhose] = useParam("whose");
  return (
    <div className="grid grid-cols-1 gap-3">
      <div className="flex flex-wrap items-end gap-2">
        <Words />
        <Choice name="kind" label="Kind" all="Any kind" options={KINDS.map((kind) => ({ value: kind, label: kind }))} />
        <Choice name="since" label="Submitted" all="Any time" options={SPANS} />
        {account.roles.includes("admin") && (
          <Segments
            label="Whose jobs"
            options={[
              { value: "mine", label: "Mine" },
              { value: "", label: "Everybody's" },
            ]}
            value={whose === "mine" ? "mine" : ""}
            onChange={setWhose}
          />
        )}
      </div>
      <div className="flex flex-wrap items-center gap-1.5">
        <States chosen={states} />
        <Named name="group" />
        <Named name="node" />
        {some && (
          <Button small look="quiet" onClick={() => setParams(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>
            Clear all
          </Button>
        )}
      </div>
    </div>
  );
}

function States({ chosen }: { chosen: string[] }) {
  const toggle = (state: string) => {
    // Of the address, not of what is drawn: a second click may come before React has drawn the first.
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

/** Typed words go into the address when the typing stops. */
function Words() {
  const [asked, ask] = useParam("q");
  const [typed, setTyped] = useDebouncedText(asked, ask);
  return (
    <div className="relative min-w-48 grow sm:max-w-xs">
      <Search size={16} aria-hidden="true" className="-translate-y-1/2 absolute top-1/2 left-3 text-muted" />
      <input
        type="search"
        aria-label="Name, key or id of a job"
        placeholder="Name, key or id"
        maxLength={200}
        className="control pl-9"
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
      />
    </div>
  );
}

interface ChoiceProps {
  name: string;
  label: string;
  all: string;
  options: { value: string; label: string }[];
}

function Choice({ name, label, all, options }: ChoiceProps) {
  const [value, setValue] = useParamState(name);
  return (
    <select aria-label={label} className="control w-auto" value={value} onChange={(event) => setValue(event.target.value)}>
      <option value="">{all}</option>
      {options.map((option) => (
        <option key={option.value} value={option.value}>
          {option.label}
        </option>
      ))}
    </select>
  );
}

/** A filter that comes with a link from elsewhere: it can only be taken away. */
function Named({ name }: { name: "group" | "node" }) {
  const params = useSearchParams();
  const value = params.get(name);
  if (!value) return null;
  return (
    <Badge tone="accent" title={value}>
      {name} {shortId(value)}
      <button type="button" aria-label={`Do not filter by ${name}`} className="-mr-1" onClick={() => setParams({ [name]: "" })}>
        <X size={14} aria-hidden="true" />
      </button>
    </Badge>
  );
}
