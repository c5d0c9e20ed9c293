"use client";
import { Stat, Stats } from "@/components/ui/card";
import { Skeleton } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import { credits, pluralize, ppm, units } from "@/lib/format";
import { Change } from "./change";
import { changeOf, type ZoneMarket } from "./zones";

const NAMES = ["Spot price", "In the last hour", "Reference", "Demand / supply", "Offered", "Wanted"];

export function ZoneStats({ zone }: { zone: ZoneMarket | undefined }) {
  if (!zone) {
    return (
      <Stats>
        {NAMES.map((name) => (
          <Stat key={name} name={name} hint={<Skeleton className="mt-1 h-3.5 w-20" />}>
            <Skeleton className="my-1 h-5 w-14" />
          </Stat>
        ))}
      </Stats>
    );
  }
  return (
    <Stats>
      <Stat name="Spot price" hint="credits per unit-hour">
        <Money micro={zone.spot} />
      </Stat>
      <Stat name="In the last hour" hint={`from ${credits(zone.hour_ago)}`}>
        <Change share={changeOf(zone)} />
      </Stat>
      <Stat name="Reference" hint={`${credits(zone.low)} to ${credits(zone.high)}`}>
        <Money micro={zone.reference} />
      </Stat>
      <Stat name="Demand / supply" hint={`${pluralize(zone.nodes, "node")} here`}>
        {ppm(zone.utilisation_ppm)}
      </Stat>
      <Stat name="Offered" hint="units, free and busy">
        {units(zone.capacity)}
      </Stat>
      <Stat name="Wanted" hint="units, busy and waiting">
        {units(zone.demand)}
      </Stat>
    </Stats>
  );
}
