"use client";
import { Ban } from "lucide-react";
import { Back } from "@/components/ui/back";
import { StateBadge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card, Fact, Facts, Stat, Stats } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Confirm } from "@/components/ui/dialog";
import { MissingPage } from "@/components/ui/missing-page";
import { Page } from "@/components/ui/page";
import { Empty, QueryView, Skeleton } from "@/components/ui/states";
import { Tabs } from "@/components/ui/tabs";
import { useToast } from "@/components/ui/toast";
import { Ago, Id } from "@/components/ui/values";
import { $api, client, type Schemas } from "@/lib/api/client";
import { errorToShow } from "@/lib/api/problem";
import { count, percent } from "@/lib/format";
import { useParam } from "@/lib/use-params";
import { groupState } from "./group-list";
import { HomeCard } from "./home-card";
import { GridSpace, ItemGrid } from "./item-grid";
import { ItemTable } from "./item-table";
import { SaveMenu } from "./save-menu";
import { Legend, StateBar } from "./state-bar";
import { useStates } from "./use-states";

type Group = Schemas["GroupView"];

const BACK = <Back href="/groups">Groups</Back>;

export function GroupPage({ id }: { id: string }) {
  const group = $api.useQuery("get", "/groups/{group_id}", { params: { path: { group_id: id } } });
  const error = errorToShow(group);
  if (!group.data && error)
    return <MissingPage kind="group" id={id} above={BACK} error={error} retry={() => void group.refetch()} />;
  if (!group.data) {
    return (
      <Page title="Group" above={BACK}>
        <Waiting />
      </Page>
    );
  }
  const found = group.data;
  return (
    <Page
      title={found.name}
      above={BACK}
      heading={
        <span className="flex flex-wrap items-center gap-3">
          {found.name} <StateBadge state={groupState(found)} />
        </span>
      }
      note={completionNote(found)}
      actions={
        <>
          <SaveMenu group={found} />
          {found.pending > 0 && <Cancel group={found} refresh={() => void group.refetch()} />}
        </>
      }
    >
      <Counts group={found} />
      <Card title="Progress" aside={<Legend counts={found.counts} />}>
        <div className="grid grid-cols-1 gap-4">
          <StateBar counts={found.counts} total={found.total} label="Progress" />
          <Grid id={id} total={found.total} />
        </div>
      </Card>
      <Lists group={found} />
      <div className="grid items-start gap-5 xl:grid-cols-2">
        <HomeCard group={found} />
        <About group={found} />
      </div>
    </Page>
  );
}

/** Complete, or what is missing. */
function completionNote(group: Group): string {
  if (group.complete) return "Complete: nothing is pending.";
  if (group.total === 0) return "The group is empty.";
  const keys = group.counts.expected ?? 0;
  const jobs = group.pending - keys;
  const parts = [jobs > 0 && `${count(jobs)} in jobs`, keys > 0 && `${count(keys)} that nobody has reported`];
  return `Waits for ${count(group.pending)} of ${count(group.total)}: ${parts.filter(Boolean).join(", ")}.`;
}

function Counts({ group }: { group: Group }) {
  const over = group.total - group.pending;
  return (
    <Stats>
      <Stat name="Items" hint={group.expected > 0 ? `${count(group.expected)} keys expected` : undefined}>
        {count(group.total)}
      </Stat>
      <Stat name="Finished" hint={group.total > 0 ? percent(over / group.total) : undefined}>
        {count(over)}
      </Stat>
      <Stat name="Succeeded">{count(group.succeeded)}</Stat>
      <Stat name="Failed" hint="or cancelled, or expired">
        <span className={group.failed > 0 ? "text-bad" : undefined}>{count(group.failed)}</span>
      </Stat>
      <Stat name="Pending">{count(group.pending)}</Stat>
      <Stat name="Duplicates" hint="reports after the first">
        {count(group.duplicates)}
      </Stat>
    </Stats>
  );
}

function Grid({ id, total }: { id: string; total: number }) {
  const states = useStates(id);
  return (
    <QueryView query={states} skeleton={<GridSpace cells={total} />}>
      {(items) => (items.length > 0 ? <ItemGrid items={items} /> : <Empty title="No items yet." />)}
    </QueryView>
  );
}

function Lists({ group }: { group: Group }) {
  const [tab, setTab] = useParam("tab");
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
        value={tab}
        onChange={setTab}
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
          <Fact name="Id">
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
        <Code label="Command to wait for everything" text={`pool group drain ${group.id}`} />
        <Code label="Command to fetch everything" text={`pool group fetch ${group.id} ./results`} />
      </div>
    </Card>
  );
}

function Cancel({ group, refresh }: { group: Group; refresh: () => void }) {
  const toast = useToast();
  const cancel = async () => {
    const { error } = await client.POST("/groups/{group_id}/cancel", { params: { path: { group_id: group.id } } });
    if (error) throw error;
    toast.success("Cancelled.");
    refresh();
  };
  return (
    <Confirm
      trigger={(open) => (
        <Button look="danger" onClick={open}>
          <Ban size={16} aria-hidden="true" /> Cancel the rest
        </Button>
      )}
      title="Cancel the rest of the group?"
      action="Cancel the rest"
      danger
      confirm={cancel}
    >
      {count(group.pending)} items are pending: their jobs stop, and unreported keys fail. Finished items stay.
    </Confirm>
  );
}

function Waiting() {
  return (
    <div role="status" aria-label="Loading" className="grid gap-5">
      <Skeleton className="h-20" />
      <Skeleton className="h-52" />
      <Skeleton className="h-96" />
    </div>
  );
}
