"use client";
import { StatRow } from "@/components/ui/card";
import { Money } from "@/components/ui/values";
import { credits, pluralize, ppm, units } from "@/lib/format";
import { Change } from "./change";
import { changeOf, type ZoneMarket } from "./zones";

export function ZoneStats({ zone }: { zone: ZoneMarket | undefined }) {
  return (
    <StatRow
      stats={[
        { name: "Spot price", value: zone && <Money micro={zone.spot} />, hint: "credits per unit-hour" },
        {
          name: "In the last hour",
          value: zone && <Change share={changeOf(zone)} />,
          hint: `from ${credits(zone?.hour_ago ?? 0)}`,
        },
        {
          name: "Reference",
          value: zone && <Money micro={zone.reference} />,
          hint: `${credits(zone?.low ?? 0)} to ${credits(zone?.high ?? 0)}`,
        },
        { name: "Demand ÷ supply", value: zone && ppm(zone.utilisation_ppm), hint: pluralize(zone?.nodes ?? 0, "node") },
        { name: "Supply", value: zone && units(zone.capacity), hint: "units, free and busy" },
        { name: "Demand", value: zone && units(zone.demand), hint: "units, busy and waiting" },
      ]}
    />
  );
}
