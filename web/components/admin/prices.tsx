"use client";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card, Fact, Facts } from "@/components/ui/card";
import { QueryView, SkeletonRows } from "@/components/ui/states";
import { Moment, Money } from "@/components/ui/values";
import { $api } from "@/lib/api/client";
import { AccountName } from "./account-name";
import { PriceEdit } from "./price-edit";
import { feePercent, type PriceTable, rate } from "./price-table";
import { PriceVersions } from "./price-versions";

export function Prices() {
  const query = $api.useQuery("get", "/prices");
  const [editing, setEditing] = useState<PriceTable | null>(null);
  return (
    <div className="grid items-start gap-5 xl:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
      <QueryView query={query} skeleton={<Waiting />}>
        {(table) =>
          editing ? (
            <PriceEdit basis={editing} newest={table} rebase={() => setEditing(table)} done={() => setEditing(null)} />
          ) : (
            <Current table={table} edit={() => setEditing(table)} />
          )
        }
      </QueryView>
      <PriceVersions />
    </div>
  );
}

function Waiting() {
  return (
    <div className="panel min-h-[60rem]">
      <SkeletonRows rows={16} />
    </div>
  );
}

function Current({ table, edit }: { table: PriceTable; edit: () => void }) {
  return (
    <Card
      title={`Prices, version ${table.version}`}
      note="The reference price of a unit-hour is base × tier × region. The market sets the spot price around it."
      aside={
        <Button small onClick={edit}>
          Change the prices
        </Button>
      }
    >
      <div className="grid gap-6">
        <Facts columns={3}>
          <Fact name="Base price per unit-hour">
            <Money micro={table.base} unit />
          </Fact>
          <Fact name="Fee">{feePercent(table.fee_ppm)} %</Fact>
          <Fact name="Range of the spot price">
            1/{table.spot_range} to {table.spot_range} times that
          </Fact>
          <Fact name="Minimum payout">
            <Money micro={table.payout_min} unit />
          </Fact>
          <Fact name="Economy">{table.economy}</Fact>
          <Fact name="In effect since">
            {table.created_at_ms ? <Moment ms={table.created_at_ms} /> : "the beginning"}
            {table.created_by && (
              <>
                , by <AccountName id={table.created_by} />
              </>
            )}
          </Fact>
        </Facts>
        <Rates title="Tiers" rates={table.tiers} />
        <Rates title="Regions" rates={table.regions} note="Any other region: 1.00" />
        <p className="break-all font-mono text-muted text-sm">SHA-256 {table.digest}</p>
      </div>
    </Card>
  );
}

function Rates({ title, rates, note }: { title: string; rates: Record<string, number>; note?: string }) {
  const rows = Object.entries(rates).sort(([a, one], [b, other]) => one - other || a.localeCompare(b));
  return (
    <section className="grid gap-2">
      <h3>
        {title} {note && <span className="font-normal text-muted text-sm">{note}</span>}
      </h3>
      <dl className="grid grid-cols-2 gap-x-6 sm:grid-cols-3 2xl:grid-cols-4">
        {rows.map(([name, value]) => (
          <div key={name} className="flex justify-between gap-2 border-line/70 border-b py-1 text-sm">
            <dt className="truncate" title={name}>
              {name}
            </dt>
            <dd className="num">{rate(value)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
