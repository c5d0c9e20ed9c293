"use client";
import { useMemo } from "react";
import { type Column, DataTable, sortRows } from "@/components/ui/data-table";
import { Money } from "@/components/ui/values";
import { count, credits, ppm, units } from "@/lib/format";
import { useParam } from "@/lib/use-params";
import { Change, Sparkline } from "./change";
import { changeOf, isSame, regionName, type Zone, type ZoneMarket } from "./zones";

interface TableProps {
  zones: ZoneMarket[];
  zone: Zone;
  onChoose: (zone: Zone) => void;
}

function span(prices: number[]): string {
  if (prices.length === 0) return "–";
  const [low, high] = [Math.min(...prices), Math.max(...prices)];
  return low === high ? credits(low) : `${credits(low)}–${credits(high)}`;
}

function columns(zone: Zone, onChoose: (zone: Zone) => void): Column<ZoneMarket>[] {
  return [
    {
      key: "tier",
      title: "Tier",
      width: "7rem",
      grow: 1.2,
      sort: (row) => row.tier,
      cell: (row) => (
        <button type="button" className="link" aria-current={isSame(row, zone) || undefined} onClick={() => onChoose(row)}>
          {row.tier}
        </button>
      ),
    },
    {
      key: "region",
      title: "Region",
      width: "7rem",
      grow: 1,
      sort: (row) => row.region,
      cell: (row) => regionName(row.region),
    },
    {
      key: "spot",
      title: "Spot",
      width: "6rem",
      right: true,
      sort: (row) => row.spot,
      cell: (row) => <Money micro={row.spot} />,
    },
    {
      key: "change",
      title: "1 h",
      width: "7.5rem",
      right: true,
      from: "sm",
      sort: (row) => changeOf(row) ?? 0,
      cell: (row) => <Change share={changeOf(row)} />,
    },
    { key: "trend", title: "Last 6 h", width: "7rem", grow: 1, from: "xl", cell: (row) => <Sparkline values={row.trend} /> },
    {
      key: "used",
      title: "Utilisation",
      width: "7rem",
      right: true,
      from: "sm",
      sort: (row) => row.utilisation_ppm,
      cell: (row) => ppm(row.utilisation_ppm),
    },
    {
      key: "supply",
      title: "Supply",
      width: "6.5rem",
      right: true,
      from: "md",
      sort: (row) => row.capacity,
      cell: (row) => units(row.capacity),
    },
    {
      key: "demand",
      title: "Demand",
      width: "6.5rem",
      right: true,
      from: "lg",
      sort: (row) => row.demand,
      cell: (row) => units(row.demand),
    },
    {
      key: "nodes",
      title: "Nodes",
      width: "6rem",
      right: true,
      from: "lg",
      sort: (row) => row.nodes,
      cell: (row) => count(row.nodes),
    },
    {
      key: "floors",
      title: "Floors",
      width: "8rem",
      right: true,
      from: "2xl",
      cell: (row) => span(row.floors.map((level) => level.floor)),
    },
    {
      key: "ceilings",
      title: "Ceilings",
      width: "8rem",
      right: true,
      from: "2xl",
      cell: (row) => span(row.ceilings.flatMap((level) => (level.price === null ? [] : [level.price]))),
    },
  ];
}

export function ZoneTable({ zones, zone, onChoose }: TableProps) {
  const [by, setBy] = useParam("sort");
  const shown = columns(zone, onChoose);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the columns differ only in the chosen zone
  const rows = useMemo(() => sortRows(zones, shown, by), [zones, by]);
  return (
    <DataTable
      label="Zones of the market"
      columns={shown}
      rows={rows}
      rowKey={(row) => `${row.tier}/${row.region}`}
      onRow={onChoose}
      sort={{ by, onChange: setBy }}
      height="30rem"
      rowHeight={44}
    />
  );
}
