"use client";
import { X } from "lucide-react";
import { Button } from "@/components/ui/button";
import { SelectField, TextField } from "@/components/ui/field";
import { count, pluralize } from "@/lib/format";
import { useDebouncedText } from "@/lib/use-debounced-text";
import { setParams, useParamState } from "@/lib/use-params";
import type { MeshNode } from "./families";
import { choices, type Filter, NO_REGION } from "./use-filter";

export function FilterBar({ nodes, shown, filter }: { nodes: MeshNode[]; shown: number; filter: Filter }) {
  const { words } = filter;
  const [typed, setTyped] = useDebouncedText(words, (q) => setParams({ q }));
  const [tier, setTier] = useParamState("tier");
  const [region, setRegion] = useParamState("region");
  const options = (all: string, of: (node: MeshNode) => string, none: string) => [
    { value: "", label: all },
    ...choices(nodes, of).map(([value, many]) => ({ value: value || NO_REGION, label: `${value || none} (${count(many)})` })),
  ];
  const filtered = Boolean(words || filter.tier || filter.region);
  return (
    <div className="flex flex-wrap items-end gap-3 px-5 pb-4">
      <TextField
        label="Search"
        type="search"
        placeholder="Name, owner, place"
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
        className="grow basis-52"
      />
      <SelectField
        label="Tier"
        value={tier}
        options={options("All tiers", (node) => node.tier, "")}
        onChange={(event) => setTier(event.target.value)}
        className="grow basis-36"
      />
      <SelectField
        label="Region"
        value={region}
        options={options("All regions", (node) => node.region, "no region")}
        onChange={(event) => setRegion(event.target.value)}
        className="grow basis-36"
      />
      <div className="flex min-h-10 items-center gap-3">
        <span role="status" className="num text-muted text-sm">
          {filtered ? `${count(shown)} of ${pluralize(nodes.length, "node")}` : pluralize(nodes.length, "node")}
        </span>
        {filtered && (
          <Button small look="quiet" onClick={() => setParams({ q: "", tier: "", region: "" })}>
            <X size={15} aria-hidden="true" /> Show all
          </Button>
        )}
      </div>
    </div>
  );
}
