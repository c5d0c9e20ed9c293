"use client";
import { useSearchParams } from "next/navigation";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { ParamField } from "@/components/ui/param-field";
import { TimeRangeField } from "@/components/ui/time-range";
import { setParams } from "@/lib/use-params";
import { ACTION, ID } from "./use-trail";

export const NO_FILTERS = { q: "", action: "", actor: "", account: "", job: "", node: "", group: "", time: "", from: "", to: "" };

const IDS = [
  { name: "actor", label: "Actor", placeholder: "acc_…, node_… or hub" },
  { name: "account", label: "Account affected", placeholder: "acc_…" },
  { name: "job", label: "Job", placeholder: "job_…" },
  { name: "node", label: "Node", placeholder: "node_…" },
  { name: "group", label: "Group", placeholder: "grp_…" },
];
// The prefixes that the field suggests.
const PREFIXES = ["account", "approval", "attempt", "credits", "group", "hub", "job", "key", "node", "payout", "prices"];

export function AuditFilters() {
  const params = useSearchParams();
  const named = IDS.some(({ name }) => params.get(name));
  const [open, setOpen] = useState(false);
  const any = Object.keys(NO_FILTERS).some((name) => params.get(name));
  return (
    <div className="grid grid-cols-1 gap-3 border-line border-b px-5 pb-4">
      <div className="grid items-start gap-3 sm:grid-cols-2 lg:grid-cols-4">
        <ParamField
          name="q"
          label="Search"
          type="search"
          maxLength={200}
          placeholder="A reason, word or ID"
          className="lg:col-span-2"
        />
        <ParamField
          name="action"
          label="Event"
          placeholder="job.failed, payout."
          list="event-prefixes"
          allowed={ACTION}
          wrong="An event name such as job.failed, or a prefix such as job."
        />
        <TimeRangeField />
        {(open || named) &&
          IDS.map((id) => (
            <ParamField key={id.name} {...id} allowed={ID} wrong="An ID contains only letters, digits, _ and -." />
          ))}
      </div>
      <datalist id="event-prefixes">
        {PREFIXES.map((prefix) => (
          <option key={prefix} value={`${prefix}.`} />
        ))}
      </datalist>
      <div className="flex flex-wrap gap-2">
        {!named && (
          <Button small look="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Fewer filters" : "More filters"}
          </Button>
        )}
        {any && (
          <Button small look="quiet" onClick={() => setParams(NO_FILTERS)}>
            Clear all filters
          </Button>
        )}
      </div>
    </div>
  );
}
