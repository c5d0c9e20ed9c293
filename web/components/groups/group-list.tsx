"use client";
import { Layers, Search } from "lucide-react";
import type { Route } from "next";
import { useRouter } from "next/navigation";
import { StateBadge } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { type Column, DataTable } from "@/components/ui/data-table";
import { SelectField } from "@/components/ui/field";
import { Link } from "@/components/ui/link";
import { Page } from "@/components/ui/page";
import { ParamField } from "@/components/ui/param-field";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count, percent } from "@/lib/format";
import { PAGED, useRows } from "@/lib/paging";
import { SLOW_QUERY } from "@/lib/refetch-scheduler";
import { useParam, useParamState } from "@/lib/use-params";
import { StateBar } from "./state-bar";

type Group = Schemas["GroupView"];

const KINDS = [
  { value: "", label: "Groups, maps, slices" },
  { value: "group", label: "Groups" },
  { value: "map", label: "Maps" },
  { value: "slices", label: "Slices" },
  { value: "session", label: "Program sessions" },
];

export function GroupList() {
  const [kind] = useParam("kind");
  const [q] = useParam("q");
  const query = { limit: 50, ...(kind && { kind }), ...(q && { q }) };
  const list = $api.useInfiniteQuery("get", "/groups", { params: { query } }, { ...PAGED, ...SLOW_QUERY });
  const { rows, more } = useRows(list, (page) => page.groups);
  const router = useRouter();
  return (
    <Page title="Groups" note="Related jobs: their progress, their results, and where those are delivered.">
      <Filters />
      <Card flush>
        <QueryView query={list} skeleton={<SkeletonRows rows={8} />}>
          {() => (
            <DataTable
              label="Groups"
              columns={COLUMNS}
              rows={rows}
              rowKey={(group) => group.id}
              rowHeight={60}
              more={more}
              onRow={(group) => router.push(`/groups?id=${group.id}` as Route)}
              empty={q || kind ? <Empty icon={Search} title="No groups match these filters." /> : <NoGroups />}
            />
          )}
        </QueryView>
      </Card>
    </Page>
  );
}

function Filters() {
  const [kind, setKind] = useParamState("kind");
  return (
    <div className="grid gap-3 sm:grid-cols-[minmax(0,22rem)_14rem]">
      <ParamField name="q" label="Search" type="search" placeholder="Part of the name, or an ID" />
      <SelectField label="Kind" options={KINDS} value={kind} onChange={(event) => setKind(event.target.value)} />
    </div>
  );
}

function NoGroups() {
  return (
    <Empty icon={Layers} title="No groups yet.">
      <p>Runs of a script form a group, and so do jobs that you submit with the same group name:</p>
      <Code label="Command that creates a group" text="pool submit train.py --group sweep" />
    </Empty>
  );
}

export function groupState(group: Group): string {
  return group.complete ? "complete" : group.total > 0 ? "open" : "empty";
}

const COLUMNS: Column<Group>[] = [
  {
    key: "name",
    title: "Name",
    width: "minmax(9rem,2fr)",
    cell: (group) => (
      <div className="min-w-0">
        <Link href={`/groups?id=${group.id}` as Route} className="link block truncate font-medium">
          {group.name}
        </Link>
        <span className="text-muted text-sm">{group.kind}</span>
      </div>
    ),
  },
  {
    key: "progress",
    title: "Progress",
    width: "minmax(7rem,2fr)",
    fill: true,
    cell: (group) => <StateBar counts={group.counts} total={group.total} label={`Progress of ${group.name}`} />,
  },
  {
    key: "done",
    title: "Done",
    width: "minmax(4.5rem,9rem)",
    right: true,
    cell: (group) =>
      group.total > 0 ? (
        <>
          <span className="sm:hidden">{percent((group.total - group.pending) / group.total)}</span>
          <span className="hidden sm:inline">
            {count(group.total - group.pending)} <span className="text-muted">/ {count(group.total)}</span>
          </span>
        </>
      ) : (
        <span className="text-muted">–</span>
      ),
  },
  {
    key: "failed",
    title: "Failed",
    width: "5.5rem",
    right: true,
    from: "sm",
    cell: (group) => (group.failed > 0 ? <span className="text-bad">{count(group.failed)}</span> : count(0)),
  },
  { key: "state", title: "State", width: "8rem", from: "md", cell: (group) => <StateBadge state={groupState(group)} /> },
  {
    key: "home",
    title: "Home",
    width: "minmax(8rem,1.5fr)",
    from: "lg",
    cell: (group) => (
      <span className="text-muted text-sm" title={group.home.sentence}>
        {group.home.state === "off" ? "–" : group.home.sentence}
      </span>
    ),
  },
  { key: "made", title: "Created", width: "8rem", from: "md", right: true, cell: (group) => <Ago ms={group.created_at_ms} /> },
];
