"use client";
import { Download } from "lucide-react";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button, ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { type Column, DataTable } from "@/components/ui/data-table";
import { SelectField } from "@/components/ui/field";
import { Link } from "@/components/ui/link";
import { ParamField } from "@/components/ui/param-field";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { TimeRangeField, useTimeRange } from "@/components/ui/time-range";
import { Ago, Money } from "@/components/ui/values";
import { $api, hubUrl, type Schemas } from "@/lib/api/client";
import type { paths } from "@/lib/api/schema";
import { shortId } from "@/lib/format";
import { PAGED, useRows } from "@/lib/paging";
import { SLOW_QUERY } from "@/lib/refetch-scheduler";
import { setParams, useParam, useParamState } from "@/lib/use-params";
import { EntryDialog } from "./entry-dialog";
import { Sums } from "./sums";
import { transferLabel } from "./transfer-labels";

type Entry = Schemas["Entry"];
const ID = /^[A-Za-z0-9_-]{1,64}$/;
type Kind = NonNullable<Schemas["Kind"]>;

const KINDS: Kind[] = [
  "hold",
  "pay",
  "fee",
  "refund",
  "take_back",
  "mature",
  "grant",
  "top_up",
  "payout_reserve",
  "payout_paid",
  "payout_return",
];

export function Statement({ accountId }: { accountId?: string | undefined }) {
  const [chosenKind] = useParam("kind");
  const [job] = useParam("job");
  const time = useTimeRange();
  const kind = KINDS.find((one) => one === chosenKind);
  const filters = {
    account_id: accountId,
    kind,
    job_id: ID.test(job) ? job : undefined,
    ...time,
  };
  const [shown, setShown] = useState<Entry | null>(null);
  const query = $api.useInfiniteQuery("get", "/credits/statement", { params: { query: filters } }, PAGED);
  const { rows, more } = useRows(query, (page) => page.entries);
  const filtered = Boolean(kind || filters.job_id || time.since_ms || time.until_ms);
  return (
    <div className={classes("grid items-start gap-5", !filters.job_id && "xl:grid-cols-[minmax(0,1fr)_22rem]")}>
      <Card
        flush
        title="Statement"
        note="All transfers, newest first. Open a row to see why."
        aside={
          <a
            href={hubUrl(["credits", "statement.csv"], filters)}
            download
            className="inline-flex min-h-8 items-center gap-2 rounded-control border border-line-strong/60 px-2.5 font-medium text-ink text-sm no-underline hover:bg-hover"
          >
            <Download size={15} aria-hidden="true" /> CSV
          </a>
        }
      >
        <Filters />
        <QueryView query={query} skeleton={<SkeletonRows rows={8} />}>
          {() => (
            <DataTable
              label="Statement"
              columns={columns(setShown)}
              rows={rows}
              rowKey={(entry) => String(entry.seq)}
              onRow={setShown}
              more={more}
              rowHeight={56}
              empty={<Nothing filtered={filtered} />}
            />
          )}
        </QueryView>
      </Card>
      {/* The hub adds up all jobs, not one: its few rows are all here. */}
      {!filters.job_id && <Totals filters={filters} />}
      <EntryDialog entry={shown} onClose={() => setShown(null)} />
    </div>
  );
}

/** A question of its own: the whole history is added up for it, which the rows need not wait for. */
function Totals({ filters }: { filters: NonNullable<paths["/credits/statement"]["get"]["parameters"]["query"]> }) {
  const init = { params: { query: { ...filters, sums: true, limit: 1 } } };
  const query = $api.useQuery("get", "/credits/statement", init, SLOW_QUERY);
  return <Sums sums={query.data?.sums} />;
}

function Filters() {
  const [kind, setKind] = useParamState("kind");
  return (
    <div className="grid grid-cols-1 gap-3 border-line border-b px-5 pb-4 sm:grid-cols-2 lg:grid-cols-3">
      <SelectField
        label="Kind"
        value={kind}
        onChange={(event) => setKind(event.target.value)}
        options={[{ value: "", label: "All kinds" }, ...KINDS.map((one) => ({ value: one, label: transferLabel(one) }))]}
      />
      <ParamField name="job" label="Job" placeholder="job_…" allowed={ID} wrong="An id has letters, digits, _ and - alone." />
      <TimeRangeField />
    </div>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  if (filtered) {
    return (
      <Empty title="No transfers match these filters">
        <div>
          <Button onClick={() => setParams({ kind: "", job: "", time: "", from: "", to: "" })}>Show all</Button>
        </div>
      </Empty>
    );
  }
  return (
    <Empty title="No credit has moved yet">
      <p>Submitting a job puts its price on hold; lending a machine earns credits.</p>
      <div className="flex justify-center gap-2">
        <ButtonLink href="/submit">Submit a job</ButtonLink>
        <ButtonLink href="/nodes/add">Lend a machine</ButtonLink>
      </div>
    </Empty>
  );
}

function columns(show: (entry: Entry) => void): Column<Entry>[] {
  return [
    {
      key: "text",
      title: "What",
      width: "minmax(8rem,3fr)",
      cell: (entry) => (
        <button
          type="button"
          className="block max-w-full truncate text-left hover:underline"
          title={entry.text}
          onClick={() => show(entry)}
        >
          {entry.job_id ? entry.text.replace(entry.job_id, shortId(entry.job_id)) : entry.text}
        </button>
      ),
    },
    { key: "kind", title: "Kind", width: "10rem", from: "lg", cell: (entry) => <Badge>{transferLabel(entry.kind)}</Badge> },
    {
      key: "job",
      title: "Job",
      width: "8rem",
      from: "lg",
      cell: (entry) =>
        entry.job_id ? (
          <Link href={{ pathname: "/jobs", query: { id: entry.job_id } }} className="link font-mono text-sm" title={entry.job_id}>
            {shortId(entry.job_id)}
          </Link>
        ) : (
          <span className="text-muted">–</span>
        ),
    },
    { key: "when", title: "When", width: "7.5rem", from: "sm", cell: (entry) => <Ago ms={entry.at_ms} /> },
    {
      key: "available",
      title: "To spend",
      width: "8.5rem",
      right: true,
      cell: (entry) => <Money micro={entry.available_change} signed exact />,
    },
    {
      key: "change",
      title: "Total",
      width: "8.5rem",
      right: true,
      from: "sm",
      cell: (entry) => (entry.change === 0 ? <span className="text-muted">–</span> : <Money micro={entry.change} signed exact />),
    },
  ];
}
