"use client";
import type { Option } from "@/components/ui/field";
import { SelectField } from "@/components/ui/field";
import { ParamField } from "@/components/ui/param-field";
import { $api, type Schemas } from "@/lib/api/client";
import { capitalize, humanize } from "@/lib/labels";
import { useParamState } from "@/lib/use-params";

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

/** What the list is narrowed down by; all of it lives in the address. */
export function NodeFilters() {
  const [state, setState] = useParamState("state");
  const [tier, setTier] = useParamState("tier");
  const [region, setRegion] = useParamState("region");
  // The market knows every tier and region that a node is in.
  const zones = $api.useQuery("get", "/market", undefined, { staleTime: 60_000 }).data?.zones ?? [];
  return (
    <div className="grid grid-cols-2 gap-3 px-5 pb-4 lg:grid-cols-[minmax(12rem,2fr)_repeat(3,minmax(8rem,1fr))]">
      <ParamField name="q" label="Search" type="search" placeholder="Name, owner or id" maxLength={200} />
      <SelectField label="State" value={state} onChange={(event) => setState(event.target.value)} options={STATES} />
      <SelectField
        label="Tier"
        value={tier}
        onChange={(event) => setTier(event.target.value)}
        options={choices("Any tier", tier, [...zones.map((zone) => zone.tier)])}
      />
      <SelectField
        label="Region"
        value={region}
        onChange={(event) => setRegion(event.target.value)}
        options={choices("Any region", region, [...zones.map((zone) => zone.region)])}
      />
    </div>
  );
}

function choices(any: string, chosen: string, known: string[]): Option[] {
  const values = [...new Set([...known, chosen])].filter(Boolean).sort();
  return [{ value: "", label: any }, ...values.map((value) => ({ value, label: value }))];
}
