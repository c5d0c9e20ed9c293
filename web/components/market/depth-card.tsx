"use client";
// Who would take part at which price: free units from their floors up, waiting units up to their ceilings.
import { Card } from "@/components/ui/card";
import { Table } from "@/components/ui/table";
import { credits, pluralize, units } from "@/lib/format";
import type { ZoneMarket } from "./zones";

interface Level {
  price: number;
  units: number; // cumulative
}

const WIDTH = 100;
const HEIGHT = 60;

/** From the cheapest floor up. */
function offers(zone: ZoneMarket): Level[] {
  let sum = 0;
  return [...zone.floors]
    .sort((one, other) => one.price - other.price)
    .map((level) => {
      sum += level.units;
      return { price: level.price, units: sum };
    });
}

/** From the highest ceiling down. Units without a ceiling are at the end of the scale. */
function bids(zone: ZoneMarket, end: number): Level[] {
  let sum = 0;
  return [...zone.ceilings]
    .sort((one, other) => (other.price ?? end) - (one.price ?? end))
    .map((level) => {
      sum += level.units;
      return { price: level.price ?? end, units: sum };
    });
}

export function DepthCard({ zone }: { zone: ZoneMarket }) {
  const stated = [
    zone.spot,
    zone.reference,
    ...zone.floors.map((one) => one.price),
    ...zone.ceilings.map((one) => one.price ?? 0),
  ];
  const end = Math.max(...stated) * 1.15 || 1;
  const [offer, want] = [offers(zone), bids(zone, end)];
  const most = Math.max(1, offer.at(-1)?.units ?? 0, want.at(-1)?.units ?? 0);
  const met = offer.filter((level) => level.price <= zone.spot).at(-1)?.units ?? 0;
  const paying = want.filter((level) => level.price >= zone.spot).at(-1)?.units ?? 0;
  return (
    <Card title="Floors and ceilings" note="Free units by floor, waiting units by ceiling, at this hub">
      <div className="grid gap-3">
        <ul className="flex flex-wrap gap-x-5 gap-y-1 text-sm">
          <li className="flex items-center gap-2">
            <span aria-hidden="true" className="w-4 border-series-3 border-t-2" /> supply
          </li>
          <li className="flex items-center gap-2">
            <span aria-hidden="true" className="w-4 border-series-2 border-t-2 border-dashed" /> demand
          </li>
          <li className="flex items-center gap-2">
            <span aria-hidden="true" className="h-4 border-ink border-l-2" /> spot {credits(zone.spot)}
          </li>
        </ul>
        <Steps zone={zone} scale={{ end, most }} offer={offer} want={want} />
        <p className="text-sm">
          At the spot price, <b className="num">{units(met)}</b> free units are offered, and{" "}
          <b className="num">{units(paying)}</b> waiting units pay it. Nodes with higher floors and jobs with lower ceilings do
          not take part.
        </p>
        <Levels zone={zone} />
      </div>
    </Card>
  );
}

interface StepsProps {
  zone: ZoneMarket;
  scale: { end: number; most: number };
  offer: Level[];
  want: Level[];
}

function Steps({ zone, scale, offer, want }: StepsProps) {
  const x = (price: number) => (WIDTH * price) / scale.end;
  const y = (amount: number) => HEIGHT - (HEIGHT * amount) / (scale.most * 1.1);
  const rising = offer.map((level) => `H${x(level.price)}V${y(level.units)}`).join("");
  const falling = want.map((level) => `H${x(level.price)}V${y(level.units)}`).join("");
  return (
    <div>
      <div className="relative border-line-strong border-b border-l">
        <span className="num absolute top-0 left-1.5 text-muted text-xs">{units(scale.most)} units</span>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true" className="h-44 w-full">
          <g fill="none" strokeWidth="2" className="[&>*]:[vector-effect:non-scaling-stroke]">
            <path d={`M0 ${HEIGHT}${rising}H${WIDTH}`} className="stroke-series-3" />
            <path d={`M${WIDTH} ${HEIGHT}${falling}H0`} strokeDasharray="6 4" className="stroke-series-2" />
            <path d={`M${x(zone.spot)} 0V${HEIGHT}`} className="stroke-ink" />
          </g>
        </svg>
      </div>
      <div className="num flex justify-between pt-1 text-muted text-xs">
        <span>0</span>
        <span>credits per unit-hour</span>
        <span>{credits(scale.end)}</span>
      </div>
    </div>
  );
}

function Levels({ zone }: { zone: ZoneMarket }) {
  const rows = [
    ...zone.floors.map((level) => ({ side: "supply", price: `from ${credits(level.price)}`, units: level.units })),
    ...zone.ceilings.map((level) => ({
      side: "demand",
      price: level.price === null ? "at any price" : `up to ${credits(level.price)}`,
      units: level.units,
    })),
  ];
  return (
    <details className="text-sm">
      <summary className="mb-2 w-fit text-muted hover:text-ink">As a table ({pluralize(rows.length, "level")})</summary>
      <Table
        rows={rows}
        rowKey={(row) => `${row.side} ${row.price}`}
        columns={[
          { title: "Side", cell: (row) => row.side },
          { title: "Price", cell: (row) => row.price },
          { title: "Units", right: true, cell: (row) => units(row.units) },
        ]}
      />
    </details>
  );
}
