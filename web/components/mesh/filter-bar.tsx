"use client";
import { X } from "lucide-react";
import { Button } from "@/components/ui/button";
import { ParamField, ParamSelect } from "@/components/ui/param-field";
import { count, pluralize } from "@/lib/format";
import { setParams } from "@/lib/use-params";
import type { MeshNode } from "./families";
import { choices, type Filter, NO_REGION } from "./use-filter";

export function FilterBar({ nodes, shown, filter }: { nodes: MeshNode[]; shown: number; filter: Filter }) {
  const options = (all: string, of: (node: MeshNode) => string) => [
    { value: "", label: all },
    ...choices(nodes, of).map(([value, many]) => ({
      value: value || NO_REGION,
      label: `${value || "no region"} (${count(many)})`,
    })),
  ];
  const filtered = Boolean(filter.words || filter.tier || filter.region);
  const [tiers, regions] = [options("All tiers", (node) => node.tier), options("All regions", (node) => node.region)];
  return (
    <div className="flex flex-wrap items-end gap-3 px-5 pb-4">
      <ParamField name="q" label="Search" type="search" placeholder="Name, owner, place" className="grow basis-52" />
      <ParamSelect name="tier" label="Tier" options={tiers} className="grow basis-36" />
      <ParamSelect name="region" label="Region" options={regions} className="grow basis-36" />
      <div className="flex min-h-10 items-center gap-3">
        <span role="status" className="num text-muted text-sm">
          {filtered ? `${count(shown)} of ${pluralize(nodes.length, "node")}` : pluralize(nodes.length, "node")}
        </span>
        {filtered && (
          <Button small look="quiet" onClick={() => setParams({ q: "", tier: "", region: "" })}>
            <X /> Show all
          </Button>
        )}
      </div>
    </div>
  );
}
