"use client";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button, ButtonLink, DownloadLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { ParamField, ParamSelect } from "@/components/ui/param-field";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { TimeRangeField, useTimeRange } from "@/components/ui/time-range";
import { Ago, Money } from "@/components/ui/values";
import { $api, hubUrl, type Schemas } from "@/lib/api/client";
import type { paths } from "@/lib/api/schema";
import { shortId } from "@/lib/format";
import { jobHref } from "@/lib/links";
import { PAGED } from "@/lib/paging";
import { SLOW_QUERY } from "@/lib/refetch-scheduler";
import { setParams, useParam } from "@/lib/use-params";
import { EntryDialog } from "./entry-dialog";
import { Sums } from "./sums";
import { TRANSFERS } from "./transfer-labels";

type Entry = Schemas["Entry"];
type Kind = NonNullable<Schemas["Kind"]>;
const ID = /^[A-Za-z0-9_-]{1,64}$/;

export function Statement({ accountId }: { accountId?: string | undefined }) {
  const [chosenKind] = useParam("kind");
  const [job] = useParam("job");
  const time = useTimeRange();
  const kind = chosenKind in TRANSFERS ? (chosenKind as Kind) : undefined;
  const filters = { account_id: accountId, kind, job_id: ID.test(job) ? job : undefined, ...time };
  const [shown, setShown] = useState<Entry | null>(null);
  const query = $api.useInfiniteQuery("get", "/credits/statement", { params: { query: filters } }, PAGED);
  const filtered = Boolean(kind || filters.job_id || time.since_ms || time.until_ms);
  return (
    <div className={classes("grid items-start gap-5", !filters.job_id && "xl:grid-cols-[minmax(0,1fr)_22rem]")}>
      <Card
        flush
        title="Statement"
        note="All transfers, newest first. Open one to see the reason."
        aside={
          <DownloadLink small href={hubUrl(["credits", "statement.csv"], filters)}>
            CSV
          </DownloadLink>
        }
      >
        <div className="grid grid-cols-1 gap-3 border-line border-b px-5 pb-4 sm:grid-cols-2 lg:grid-cols-3">
          <ParamSelect
            name="kind"
            label="Kind"
            options={[
              { value: "", label: "All kinds" },
              ...Object.entries(TRANSFERS).map(([value, label]) => ({ value, label })),
            ]}
          />
          <ParamField
            name="job"
            label="Job"
            placeholder="job_…"
            allowed={ID}
            wrong="An ID contains only letters, digits, _ and -."
          />
          <TimeRangeField />
        </div>
        <PagedTable
          label="Statement"
          query={query}
          rowsOf={(page) => page.entries}
          skeleton={<SkeletonRows rows={8} />}
          columns={columns(setShown)}
          rowKey={(entry) => String(entry.seq)}
          onRow={setShown}
          rowHeight={56}
          empty={<NoTransfers filtered={filtered} />}
        />
      </Card>
      {/* The hub has no totals of a single job, whose few transfers are all listed. */}
      {!filters.job_id && <Totals filters={filters} />}
      <EntryDialog entry={shown} onClose={() => setShown(null)} />
    </div>
  );
}

/** A query of its own: adding up the whole history takes longer than the first rows. */
function Totals({ filters }: { filters: NonNullable<paths["/credits/statement"]["get"]["parameters"]["query"]> }) {
  const init = { params: { query: { ...filters, sums: true, limit: 1 } } };
  const query = $api.useQuery("get", "/credits/statement", init, SLOW_QUERY);
  return <Sums sums={query.data?.sums} />;
}

function NoTransfers({ filtered }: { filtered: boolean }) {
  if (filtered) {
    return (
      <Empty title="No transfers match these filters">
        <div>
          <Button onClick={() => setParams({ kind: "", job: "", time: "", from: "", to: "" })}>Clear all filters</Button>
        </div>
      </Empty>
    );
  }
  return (
    <Empty title="No transfers yet">
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
      title: "Transfer",
      width: "8rem",
      grow: 3,
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
    { key: "kind", title: "Kind", width: "10rem", from: "lg", cell: (entry) => <Badge>{TRANSFERS[entry.kind]}</Badge> },
    {
      key: "job",
      title: "Job",
      width: "8rem",
      from: "lg",
      cell: (entry) =>
        entry.job_id ? (
          <Link href={jobHref(entry.job_id)} className="link font-mono text-sm" title={entry.job_id}>
            {shortId(entry.job_id)}
          </Link>
        ) : (
          <span className="text-muted">–</span>
        ),
    },
    { key: "when", title: "When", width: "7.5rem", from: "sm", cell: (entry) => <Ago ms={entry.at_ms} /> },
    {
      key: "available",
      title: "Available",
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
