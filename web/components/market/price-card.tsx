"use client";
import { keepPreviousData } from "@tanstack/react-query";
import { Card } from "@/components/ui/card";
import { Segments } from "@/components/ui/segments";
import { QueryView, Skeleton } from "@/components/ui/states";
import { TimeChart, type TimeSeries } from "@/components/ui/time-chart";
import { $api, type Schemas } from "@/lib/api/client";
import { credits, ppm } from "@/lib/format";
import { useParam } from "@/lib/use-params";
import { isSame, regionName, SPANS, type Span, type ZoneMarket, type ZoneSeries, zoneName } from "./zones";

const REFETCH_MS: Record<Span, number> = { "1h": 15_000, "24h": 60_000, "7d": 300_000, "30d": 300_000 };
/** While no price of the zone is recorded, which takes one update of the market. */
const FIRST_MS = 3_000;
const LINES_MAX = 6;
const PRICE_HEIGHT = 320;
const USED_HEIGHT = 170;

interface PriceProps {
  zone: ZoneMarket;
  zones: ZoneMarket[];
  span: Span;
  onSpan: (span: string) => void;
}

export function PriceCard({ zone, zones, span, onSpan }: PriceProps) {
  const [compare, setCompare] = useParam("compare");
  const query = $api.useQuery(
    "get",
    "/market/chart",
    { params: { query: { span } } },
    {
      refetchInterval: ({ state }) => (state.data?.zones.some((one) => isSame(one, zone)) ? REFETCH_MS[span] : FIRST_MS),
      placeholderData: keepPreviousData,
    },
  );
  const options = [
    { value: "", label: "This zone" },
    { value: "regions", label: `Regions of ${zone.tier}` },
    { value: "tiers", label: `Tiers in ${regionName(zone.region)}` },
  ];
  const held = options.some((option) => option.value === compare) ? compare : "";
  return (
    <Card
      title={`Price of ${zoneName(zone)}`}
      note="Credits per unit-hour, fee included"
      aside={<Segments label="Time range" options={[...SPANS]} value={span} onChange={onSpan} />}
    >
      <div className="grid gap-5">
        <div className="max-w-full overflow-x-auto">
          <Segments label="Comparison" options={options} value={held} onChange={setCompare} />
        </div>
        <QueryView query={query} skeleton={<Skeleton className="h-[32rem]" />}>
          {(chart) => <Charts chart={chart} zone={zone} zones={zones} compare={held} />}
        </QueryView>
      </div>
    </Card>
  );
}

interface ChartsProps {
  chart: Schemas["MarketChart"];
  zone: ZoneMarket;
  zones: ZoneMarket[];
  compare: string;
}

function Charts({ chart, zone, zones, compare }: ChartsProps) {
  const shown = seriesToCompare(chart.zones, { zone, zones, compare });
  if (shown.length === 0) {
    return (
      <p className="py-16 text-center text-muted">
        No price is recorded for this zone yet. The first one comes with the next update of the market.
      </p>
    );
  }
  const range: [number, number] = [chart.at_ms[0] ?? 0, (chart.at_ms.at(-1) ?? 0) + chart.step_ms];
  const alone = compare === "";
  const named = (one: ZoneSeries) => (compare === "regions" ? regionName(one.region) : compare === "tiers" ? one.tier : "Spot");
  const price: TimeSeries[] = shown.map((one) => ({ label: named(one), points: one.price }));
  if (alone) price.push({ label: "Reference", points: chart.at_ms.map(() => zone.reference), colour: 6, dashed: true });
  const used: TimeSeries[] = shown.map((one) => ({
    label: alone ? "Utilisation" : named(one),
    points: one.utilisation_ppm,
    filled: alone,
  }));
  return (
    <>
      <TimeChart
        label="Spot price"
        times={chart.at_ms}
        series={price}
        format={(value) => credits(value)}
        height={PRICE_HEIGHT}
        range={range}
        steps
      />
      <div className="grid gap-2">
        <h3>Demand as a share of supply</h3>
        <TimeChart
          label="Utilisation"
          times={chart.at_ms}
          series={used}
          format={(value) => ppm(value)}
          height={USED_HEIGHT}
          range={range}
          least={0}
          most={1_000_000}
          steps
        />
      </div>
    </>
  );
}

/** The chosen zone first, then the busiest of those it is compared with. */
function seriesToCompare(series: ZoneSeries[], { zone, zones, compare }: Omit<ChartsProps, "chart">): ZoneSeries[] {
  const near = series.filter((one) =>
    compare === "regions" ? one.tier === zone.tier : compare === "tiers" ? one.region === zone.region : isSame(one, zone),
  );
  const weight = (one: ZoneSeries) => {
    const now = zones.find((other) => isSame(one, other));
    return isSame(one, zone) ? Number.POSITIVE_INFINITY : now ? now.capacity + now.demand + now.nodes : -1;
  };
  return near.sort((one, other) => weight(other) - weight(one)).slice(0, LINES_MAX);
}
