"use client";
import { SelectField } from "@/components/ui/field";
import { busiest, regionName, type Zone, type ZoneMarket } from "./zones";

interface ChooserProps {
  zones: ZoneMarket[];
  zone: ZoneMarket;
  onChoose: (zone: Zone) => void;
}

export function ZoneChooser({ zones, zone, onChoose }: ChooserProps) {
  const tiers = [...new Set(zones.map((one) => one.tier))];
  const here = zones.filter((one) => one.tier === zone.tier);
  return (
    <div className="flex flex-wrap gap-3">
      <SelectField
        label="Tier"
        value={zone.tier}
        options={tiers.map((tier) => ({ value: tier, label: tier }))}
        onChange={(event) => {
          const there = zones.filter((one) => one.tier === event.target.value);
          // The same region, if the tier has a price there.
          const next = there.find((one) => one.region === zone.region) ?? busiest(there);
          if (next) onChoose(next);
        }}
        className="w-40"
      />
      <SelectField
        label="Region"
        value={zone.region}
        options={here.map((one) => ({ value: one.region, label: regionName(one.region) }))}
        onChange={(event) => onChoose({ tier: zone.tier, region: event.target.value })}
        className="w-40"
      />
    </div>
  );
}
