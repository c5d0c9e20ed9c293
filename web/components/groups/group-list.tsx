"use client";
import { Layers, Search } from "lucide-react";
import { useRouter } from "next/navigation";
import { StateBadge } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Page } from "@/components/ui/page";
import { ParamField, ParamSelect } from "@/components/ui/param-field";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count, percent } from "@/lib/format";
import { groupHref } from "@/lib/links";
import { PAGED } from "@/lib/paging";
import { SLOW_QUERY } from "@/lib/refetch-scheduler";
import { useParam } from "@/lib/use-params";
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
  const router = useRouter();
  return (
    <Page title="Groups" note="Related jobs: their progress, their results, and where those are delivered.">
      <div className="grid gap-3 sm:grid-cols-[minmax(0,22rem)_14rem]">
        <ParamField name="q" label="Search" type="search" placeholder="Part of the name, or an ID" />
        <ParamSelect name="kind" label="Kind" options={KINDS} />
      </div>
      <Card flush>
        <PagedTable
          label="Groups"
          query={list}
          rowsOf={(page) => page.groups}
          skeleton={<SkeletonRows rows={8} />}
          columns={COLUMNS}
          rowKey={(group) => group.id}
          rowHeight={60}
          onRow={(group) => router.push(groupHref(group.id))}
          empty={q || kind ? <Empty icon={Search} title="No groups match these filters" /> : <NoGroups />}
        />
      </Card>
    </Page>
  );
}

function NoGroups() {
  return (
    <Empty icon={Layers} title="No groups yet">
      <p>Several runs of a script form a group, and so do jobs that you submit with the same group name:</p>
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
    width: "9rem",
    grow: 2,
    cell: (group) => (
      <div className="min-w-0">
        <Link href={groupHref(group.id)} className="link block truncate font-medium">
          {group.name}
        </Link>
        <span className="text-muted text-sm">{group.kind}</span>
      </div>
    ),
  },
  {
    key: "progress",
    title: "Progress",
    width: "7rem",
    grow: 2,
    fill: true,
    cell: (group) => <StateBar counts={group.counts} total={group.total} label={`Progress of ${group.name}`} />,
  },
  {
    key: "done",
    title: "Done",
    width: "5.2rem",
    grow: 1.5,
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
    cell: (group) => <span className={group.failed > 0 ? "text-bad" : undefined}>{count(group.failed)}</span>,
  },
  { key: "state", title: "State", width: "8rem", from: "md", cell: (group) => <StateBadge state={groupState(group)} /> },
  {
    key: "home",
    title: "Delivery",
    width: "8rem",
    grow: 1.5,
    from: "lg",
    cell: (group) => (
      <span className="text-muted text-sm" title={group.home.sentence}>
        {group.home.state === "off" ? "–" : group.home.sentence}
      </span>
    ),
  },
  { key: "made", title: "Created", width: "8rem", from: "md", right: true, cell: (group) => <Ago ms={group.created_at_ms} /> },
];
