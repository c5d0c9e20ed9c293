"use client";
import { Download, Pause, Play } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { DataTable } from "@/components/ui/data-table";
import { Page } from "@/components/ui/page";
import { Empty, Notice, QueryView, SkeletonRows } from "@/components/ui/states";
import { count, moment, pluralize } from "@/lib/format";
import { moreOf } from "@/lib/paging";
import { useSession } from "@/lib/session";
import { setParams } from "@/lib/use-params";
import { AuditFilters, NO_FILTERS } from "./audit-filters";
import type { HubEvent } from "./event";
import { eventColumns } from "./event-columns";
import { EventDialog } from "./event-dialog";
import { saveCsv, saveJson } from "./export-events";
import { useFilters, useTrail } from "./use-trail";

export function AuditPage() {
  const { account } = useSession();
  const admin = account?.roles.includes("admin");
  return (
    <Page
      title="Audit"
      note={
        admin
          ? "Every event at this hub: who, what, from, to, why and when."
          : "Every event of your jobs, nodes and credits: who, what, from, to, why and when."
      }
    >
      <Trail />
    </Page>
  );
}

function Trail() {
  const [paused, setPaused] = useState(false);
  const [shown, setShown] = useState<HubEvent | null>(null);
  const { query, events, names, waiting, left, anew, searchedTo } = useTrail(paused);
  return (
    <Card
      flush
      title="Events"
      note={
        <span aria-live="polite">
          {count(events.length)} shown, newest first
          {paused ? `; paused, ${count(waiting)} since then` : "; new ones appear live"}
          {searchedTo ? `; searched back to ${moment(searchedTo)}` : ""}
        </span>
      }
      aside={
        <>
          <Button small aria-pressed={paused} onClick={() => setPaused(!paused)}>
            {paused ? <Play size={15} aria-hidden="true" /> : <Pause size={15} aria-hidden="true" />}
            {paused ? "Resume" : "Pause"}
          </Button>
          <Button small disabled={events.length === 0} onClick={() => saveCsv(events, names)}>
            <Download size={15} aria-hidden="true" /> CSV
          </Button>
          <Button small disabled={events.length === 0} onClick={() => saveJson(events)}>
            <Download size={15} aria-hidden="true" /> JSON
          </Button>
        </>
      }
    >
      <AuditFilters />
      {left > 0 && (
        <Notice tone="warn">
          {pluralize(left, "event that", "events that")} happened meanwhile {left === 1 ? "is" : "are"} left out below, and of
          files saved here.{" "}
          <Button small onClick={() => void anew()}>
            Show the newest
          </Button>
        </Notice>
      )}
      <QueryView query={query} skeleton={<SkeletonRows rows={10} />}>
        {() => (
          <DataTable
            label="Events"
            columns={eventColumns(names, setShown)}
            rows={events}
            rowKey={(event) => String(event.seq)}
            onRow={setShown}
            more={moreOf(query)}
            empty={<Nothing />}
          />
        )}
      </QueryView>
      <EventDialog event={shown} names={names} onClose={() => setShown(null)} />
    </Card>
  );
}

function Nothing() {
  const filtered = Object.keys(useFilters()).length > 0;
  if (!filtered) {
    return (
      <Empty title="Nothing has happened yet">
        <p>Every change of a job, node, key or credit is recorded here.</p>
      </Empty>
    );
  }
  return (
    <Empty title="No events match these filters">
      <div>
        <Button onClick={() => setParams(NO_FILTERS)}>Show all</Button>
      </div>
    </Empty>
  );
}
