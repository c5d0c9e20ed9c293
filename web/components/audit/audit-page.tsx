"use client";
import { Download, Pause, Play } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { PagedTable } from "@/components/ui/data-table";
import { Page } from "@/components/ui/page";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { count, moment } from "@/lib/format";
import { useRole } from "@/lib/session";
import { setParams } from "@/lib/use-params";
import { AuditFilters, NO_FILTERS } from "./audit-filters";
import { eventColumns } from "./event-columns";
import { EventDialog } from "./event-dialog";
import { saveCsv, saveJson } from "./export-events";
import { type HubEvent, useFilters, useTrail } from "./use-trail";

export function AuditPage() {
  const whose = useRole("admin") ? "at this hub" : "of your jobs, nodes and credits";
  return (
    <Page title="Audit" note={`Every event ${whose}: who did what, when and why.`}>
      <Trail />
    </Page>
  );
}

function Trail() {
  const [paused, setPaused] = useState(false);
  const [shown, setShown] = useState<HubEvent | null>(null);
  const { query, names, waiting, searchedTo } = useTrail(paused);
  const events = query.data?.pages.flatMap((page) => page.events) ?? [];
  const notes = [
    `${count(events.length)} shown, newest first`,
    paused ? `paused, ${count(waiting)} new since then` : "updated live",
    ...(searchedTo ? [`searched back to ${moment(searchedTo)}`] : []),
  ];
  return (
    <Card
      flush
      title="Events"
      note={<span aria-live="polite">{notes.join("; ")}</span>}
      aside={
        <>
          <Button small aria-pressed={paused} onClick={() => setPaused(!paused)}>
            {paused ? <Play /> : <Pause />} {paused ? "Resume" : "Pause"}
          </Button>
          <Button small disabled={events.length === 0} onClick={() => saveCsv(events, names)}>
            <Download /> CSV
          </Button>
          <Button small disabled={events.length === 0} onClick={() => saveJson(events)}>
            <Download /> JSON
          </Button>
        </>
      }
    >
      <AuditFilters />
      <PagedTable
        label="Events"
        query={query}
        rowsOf={(page) => page.events}
        skeleton={<SkeletonRows rows={10} />}
        columns={eventColumns(names, setShown)}
        rowKey={(event) => String(event.seq)}
        onRow={setShown}
        empty={<NoEvents />}
      />
      <EventDialog event={shown} names={names} onClose={() => setShown(null)} />
    </Card>
  );
}

function NoEvents() {
  if (Object.keys(useFilters()).length === 0) {
    return (
      <Empty title="No events yet">
        <p>Every change of a job, node, key or credit is recorded here.</p>
      </Empty>
    );
  }
  return (
    <Empty title="No events match these filters">
      <div>
        <Button onClick={() => setParams(NO_FILTERS)}>Clear all filters</Button>
      </div>
    </Empty>
  );
}
