"use client";
import { Store } from "lucide-react";
import { ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Page } from "@/components/ui/page";
import { Empty, Notice, QueryView, Skeleton } from "@/components/ui/states";
import { $api, type Schemas } from "@/lib/api/client";
import { DepthCard } from "./depth-card";
import { MarketActions } from "./market-actions";
import { PriceCard } from "./price-card";
import { ZoneChooser } from "./zone-chooser";
import { ZoneStats } from "./zone-stats";
import { ZoneTable } from "./zone-table";
import { useSpan, useZone } from "./zones";

const EVERY_MS = 5000;

export function MarketPage() {
  const query = $api.useQuery("get", "/market", undefined, { refetchInterval: EVERY_MS });
  const market = query.data;
  const note = market?.economy === "market" && <span className="block max-w-4xl">{market.sentence}</span>;
  return (
    <Page title="Market" note={note}>
      <QueryView query={query} skeleton={<MarketSkeleton />}>
        {(market) => (market.economy === "market" ? <Zones market={market} /> : <NoMarket market={market} />)}
      </QueryView>
    </Page>
  );
}

function Zones({ market }: { market: Schemas["MarketView"] }) {
  const [zone, choose] = useZone(market.zones);
  const [span, setSpan] = useSpan();
  if (!zone) return <NoZones />;
  return (
    <>
      <div className="flex flex-wrap items-end gap-x-6 gap-y-3">
        <ZoneChooser zones={market.zones} zone={zone} onChoose={choose} />
        <p className="min-h-10 min-w-0 flex-1 basis-72 content-center">{zone.sentence}</p>
      </div>
      <ZoneStats zone={zone} />
      <div className="grid min-w-0 items-start gap-5 xl:grid-cols-[minmax(0,1fr)_25rem]">
        <PriceCard zone={zone} zones={market.zones} span={span} onSpan={setSpan} />
        <div className="grid min-w-0 gap-5">
          <DepthCard zone={zone} />
          <MarketActions />
        </div>
      </div>
      <Card title="All zones" note="Select a zone to show it above" flush>
        <ZoneTable zones={market.zones} zone={zone} onChoose={choose} />
      </Card>
    </>
  );
}

function NoZones() {
  return (
    <Card>
      <Empty title="There are no prices yet" icon={Store}>
        <p>A zone gets its price with the first node of a tier in a region.</p>
        <p>
          <ButtonLink href="/nodes/add" look="primary">
            Add a node
          </ButtonLink>
        </p>
      </Empty>
    </Card>
  );
}

/** Another economy. */
function NoMarket({ market }: { market: Schemas["MarketView"] }) {
  return (
    <>
      <Notice>
        This pool has no market: its economy is <b>{market.economy}</b>.
      </Notice>
      <Card>
        <Empty title={market.sentence} icon={Store}>
          <p>Jobs are placed by fit and fair share alone.</p>
          <p className="flex flex-wrap justify-center gap-3">
            <ButtonLink href="/submit">Submit a job</ButtonLink>
            <ButtonLink href="/credits">See your credits</ButtonLink>
          </p>
        </Empty>
      </Card>
    </>
  );
}

function MarketSkeleton() {
  return (
    <div role="status" aria-label="Loading" className="grid gap-5">
      <Skeleton className="h-16 max-w-xl" />
      <ZoneStats zone={undefined} />
      <div className="grid gap-5 xl:grid-cols-[minmax(0,1fr)_25rem]">
        <Skeleton className="h-[38rem]" />
        <Skeleton className="h-[38rem]" />
      </div>
    </div>
  );
}
