"use client";
import type { Option } from "@/components/ui/field";
import { ParamField, ParamSelect } from "@/components/ui/param-field";
import { $api, type Schemas } from "@/lib/api/client";
import { capitalize, humanize } from "@/lib/labels";
import { useParam } from "@/lib/use-params";

const STATUSES: Schemas["NodeStatus"][] = [
  "ready",
  "working",
  "floor_above_price",
  "owner_only",
  "cooling_off",
  "paused",
  "draining",
  "not_polling",
  "unresponsive",
  "offline",
  "left",
  "revoked",
];

const STATES: Option[] = [
  { value: "", label: "Any state" },
  { value: "online", label: "Online" },
  ...STATUSES.map((value) => ({ value, label: capitalize(humanize(value)) })),
];

export function NodeFilters() {
  // The market knows every tier and region that has nodes.
  const zones = $api.useQuery("get", "/market", undefined, { staleTime: 60_000 }).data?.zones ?? [];
  return (
    <div className="grid grid-cols-2 gap-3 px-5 pb-4 lg:grid-cols-[minmax(12rem,2fr)_repeat(3,minmax(8rem,1fr))]">
      <ParamField name="q" label="Search" type="search" placeholder="Name, owner or ID" maxLength={200} />
      <ParamSelect name="state" label="State" options={STATES} />
      <Choice name="tier" label="Tier" all="Any tier" values={zones.map((zone) => zone.tier)} />
      <Choice name="region" label="Region" all="Any region" values={zones.map((zone) => zone.region)} />
    </div>
  );
}

function Choice({ name, label, all, values }: { name: string; label: string; all: string; values: string[] }) {
  const [chosen] = useParam(name);
  const known = [...new Set([...values, chosen])].filter(Boolean).sort();
  return (
    <ParamSelect
      name={name}
      label={label}
      options={[{ value: "", label: all }, ...known.map((value) => ({ value, label: value }))]}
    />
  );
}
