"use client";
import { Ban } from "lucide-react";
import { GroupGraph } from "@/components/jobs/job-graph";
import { StateBadge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card, Fact, Facts, Stat, Stats } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Back, Detail } from "@/components/ui/detail";
import { Confirm } from "@/components/ui/dialog";
import { Page } from "@/components/ui/page";
import { Empty, QueryView } from "@/components/ui/states";
import { Tabs } from "@/components/ui/tabs";
import { Ago, Id } from "@/components/ui/values";
import { $api, answerOf, client, type Schemas } from "@/lib/api/client";
import { count, percent } from "@/lib/format";
import { groupState } from "./group-list";
import { HomeCard } from "./home-card";
import { GridSpace, ItemGrid } from "./item-grid";
import { ItemTable } from "./item-table";
import { SaveMenu } from "./save-menu";
import { Legend, StateBar } from "./state-bar";
import { useStates } from "./use-items";

type Group = Schemas["GroupView"];

export function GroupPage({ id }: { id: string }) {
  const query = $api.useQuery("get", "/groups/{group_id}", { params: { path: { group_id: id } } });
  return (
    <Detail kind="group" id={id} query={query}>
      {(group) => <Known group={group} />}
    </Detail>
  );
}

function Known({ group }: { group: Group }) {
  return (
    <Page
      title={group.name}
      above={<Back kind="group" />}
      heading={
        <span className="flex flex-wrap items-center gap-3">
          {group.name} <StateBadge state={groupState(group)} />
        </span>
      }
      note={completionNote(group)}
      actions={
        <>
          <SaveMenu group={group} />
          {group.pending > 0 && <Cancel group={group} />}
        </>
      }
    >
      <Counts group={group} />
      <Card title="Progress" aside={<Legend counts={group.counts} />}>
        <div className="grid grid-cols-1 gap-4">
          <StateBar counts={group.counts} total={group.total} label="Progress" />
          <Grid id={group.id} total={group.total} />
        </div>
      </Card>
      <GroupGraph groupId={group.id} />
      <Lists group={group} />
      <div className="grid items-start gap-5 xl:grid-cols-2">
        <HomeCard group={group} />
        <About group={group} />
      </div>
    </Page>
  );
}

function completionNote(group: Group): string {
  if (group.complete) return "Complete: nothing is pending.";
  if (group.total === 0) return "The group is empty.";
  const keys = group.counts.expected ?? 0;
  const unreported = keys > 0 ? ` (${count(keys)} not reported yet)` : "";
  return `${count(group.pending)} of ${count(group.total)} remaining${unreported}.`;
}

function Counts({ group }: { group: Group }) {
  const finished = group.total - group.pending;
  return (
    <Stats>
      <Stat name="Items" hint={group.expected > 0 ? `${count(group.expected)} keys expected` : undefined}>
        {count(group.total)}
      </Stat>
      <Stat name="Finished" hint={group.total > 0 ? percent(finished / group.total) : undefined}>
        {count(finished)}
      </Stat>
      <Stat name="Succeeded">{count(group.succeeded)}</Stat>
      <Stat name="Failed" hint="including cancelled, expired">
        <span className={group.failed > 0 ? "text-bad" : undefined}>{count(group.failed)}</span>
      </Stat>
      <Stat name="Pending">{count(group.pending)}</Stat>
      <Stat name="Duplicates" hint="repeated reports">
        {count(group.duplicates)}
      </Stat>
    </Stats>
  );
}

function Grid({ id, total }: { id: string; total: number }) {
  const states = useStates(id);
  return (
    <QueryView query={states} skeleton={<GridSpace cells={total} />}>
      {(items) => (items.length > 0 ? <ItemGrid items={items} /> : <Empty title="No items yet" />)}
    </QueryView>
  );
}

function Lists({ group }: { group: Group }) {
  const tabs = [
    { value: "results", label: `Results ${count(group.succeeded)}`, which: "results", rows: group.succeeded },
    { value: "failures", label: `Failures ${count(group.failed)}`, which: "failures", rows: group.failed },
    { value: "waiting", label: `Waiting ${count(group.pending)}`, which: "waiting", rows: group.pending },
    { value: "all", label: "All items", which: "all", rows: group.total },
  ] as const;
  return (
    <section aria-label="Items" className="min-w-0">
      <Tabs
        label="Lists of items"
        tabs={tabs.map(({ value, label, which, rows }) => ({
          value,
          label,
          content: (
            <Card flush>
              <ItemTable groupId={group.id} which={which} about={rows} />
            </Card>
          ),
        }))}
      />
    </section>
  );
}

function About({ group }: { group: Group }) {
  return (
    <Card title="About">
      <div className="grid grid-cols-1 gap-4">
        <Facts>
          <Fact name="ID">
            <Id id={group.id} />
          </Fact>
          <Fact name="Kind">{group.kind}</Fact>
          <Fact name="Created">
            <Ago ms={group.created_at_ms} />
          </Fact>
          {group.completed_at_ms && (
            <Fact name="Complete">
              <Ago ms={group.completed_at_ms} />
            </Fact>
          )}
        </Facts>
        <Code label="Command to wait for all items" text={`pool group drain ${group.id}`} />
        <Code label="Command to fetch all results" text={`pool group fetch ${group.id} ./results`} />
      </div>
    </Card>
  );
}

function Cancel({ group }: { group: Group }) {
  return (
    <Confirm
      trigger={(open) => (
        <Button look="danger" onClick={open}>
          <Ban /> Cancel the rest
        </Button>
      )}
      title="Cancel the rest of the group?"
      action="Cancel the rest"
      danger
      confirm={() => answerOf(client.POST("/groups/{group_id}/cancel", { params: { path: { group_id: group.id } } }))}
      success={() => "Cancelled."}
    >
      {count(group.pending)} items are pending. Their jobs stop, and unreported keys fail. Finished items stay.
    </Confirm>
  );
}
