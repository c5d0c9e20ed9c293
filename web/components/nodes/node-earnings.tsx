"use client";
import { ButtonLink } from "@/components/ui/button";
import { Card, Fact, Facts, Stat, Stats } from "@/components/ui/card";
import { Notice, QueryView, SkeletonRows } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { pluralize, ppm, units } from "@/lib/format";
import type { NodeView } from "./node-cells";
import { NodeFloor } from "./node-floor";

const EVERY_MS = 10_000; // prices move every few seconds

export function NodeEarnings({ node }: { node: NodeView }) {
  const query = $api.useQuery(
    "get",
    "/nodes/{node_id}/earnings",
    { params: { path: { node_id: node.id } } },
    { refetchInterval: EVERY_MS },
  );
  return (
    <QueryView query={query} skeleton={<SkeletonRows rows={10} />}>
      {(earnings) => (
        <div className="grid gap-5">
          <Notice tone={earnings.in_money ? "good" : "warn"}>{earnings.sentence}</Notice>
          <Amounts earnings={earnings} />
          <div className="grid min-w-0 gap-5 xl:grid-cols-2 xl:items-start">
            <Sales sales={earnings.sales} />
            <NodeFloor node={node} earnings={earnings} />
          </div>
        </div>
      )}
    </QueryView>
  );
}

function Amounts({ earnings }: { earnings: Schemas["NodeEarnings"] }) {
  return (
    <div className="grid gap-3">
      <Stats>
        {earnings.past.map((past) => (
          <Stat
            key={past.days}
            name={past.days === 1 ? "Earned, last day" : `Earned, last ${past.days} days`}
            hint={pluralize(past.jobs, "job")}
          >
            <Money micro={past.amount} unit />
          </Stat>
        ))}
      </Stats>
      <p className="flex flex-wrap items-center gap-x-4 gap-y-2 text-muted text-sm">
        Paid for jobs on this node, after the fee.
        <ButtonLink href="/credits" small>
          Credits and statement
        </ButtonLink>
      </p>
    </div>
  );
}

function Sales({ sales }: { sales: Schemas["Sale"][] }) {
  return (
    <Card
      title="At current prices"
      note="After the fee. A unit is a core, or a GPU for jobs that use one. A GPU's cores are not sold twice."
    >
      <ul className="divide-y divide-line">
        {sales.map((sale) => (
          <li key={`${sale.tier}/${sale.region}`} className="grid gap-2 py-3 first:pt-0 last:pb-0">
            <p className="flex flex-wrap justify-between gap-x-4">
              <span className="font-medium">
                {units(sale.units)} × {sale.tier}
                {sale.region && <span className="font-normal text-muted"> in {sale.region}</span>}
              </span>
              <span className={sale.in_money ? "text-good" : "text-warn"}>
                {sale.in_money ? "the price meets its floor" : "its floor is above the price"}
              </span>
            </p>
            <Facts columns={2}>
              <Amount name="Spot price" micro={sale.spot} note="per unit-hour, fee included" />
              <Amount name="Floor" micro={sale.floor > 0 ? sale.floor : null} note="per unit-hour, after the fee" />
              <Amount name="Per hour" micro={sale.per_hour} note="when fully used" />
              <Amount name="Per day" micro={sale.per_day} note={`at the zone's utilisation of ${ppm(sale.utilisation_ppm)}`} />
            </Facts>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Amount({ name, micro, note }: { name: string; micro: number | null; note: string }) {
  return (
    <Fact name={name}>
      <span className="num font-medium text-lg leading-snug">{micro === null ? "none" : <Money micro={micro} />}</span>
      <p className="text-muted text-sm">{note}</p>
    </Fact>
  );
}
