"use client";
import { Plus, Server } from "lucide-react";
import type { Route } from "next";
import { useRouter, useSearchParams } from "next/navigation";
import { useMemo } from "react";
import { Button, ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Page } from "@/components/ui/page";
import { Segments } from "@/components/ui/segments";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { Ago, Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { pluralize } from "@/lib/format";
import { nodeHref } from "@/lib/links";
import { PAGED } from "@/lib/paging";
import { useRole } from "@/lib/session";
import { setParams } from "@/lib/use-params";
import { coreText, gpuText, NodeState, NodeTier, type NodeView, ScoreBar } from "./node-cells";
import { NodeFilters } from "./node-filters";

const EVERY_MS = 5000; // for each page: the stream of news does not report other people's nodes
const ROWS = 100;
const ALIVE = ["active", "paused", "draining"] as const;
const FILTERS = ["q", "state", "tier", "region"];

export function NodeList() {
  const params = useSearchParams();
  const lends = useRole("provider");
  const show = params.get("show") ?? (lends ? "mine" : "all");
  return (
    <Page
      title="Nodes"
      note={show === "mine" ? "Machines that you lend to the pool." : "All machines of the pool."}
      actions={
        <>
          <Segments
            label="Whose nodes"
            value={show}
            onChange={(value) => setParams({ show: value })}
            options={[
              { value: "mine", label: "Mine" },
              { value: "all", label: "All" },
            ]}
          />
          {lends && (
            <ButtonLink href="/nodes/add" look="primary">
              <Plus /> Add a node
            </ButtonLink>
          )}
        </>
      }
    >
      <NodeTable mine={show === "mine"} />
    </Page>
  );
}

function NodeTable({ mine }: { mine: boolean }) {
  const params = useSearchParams();
  const router = useRouter();
  const state = params.get("state") ?? "";
  const query = {
    mine,
    limit: ROWS,
    q: params.get("q") ?? "",
    tier: params.get("tier") ?? "",
    region: params.get("region") ?? "",
    // Nodes that were revoked or left are shown only on request.
    state: state === "revoked" || state === "left" ? ["revoked" as const] : [...ALIVE],
    ...(state === "online" ? { online: true } : state && { status: [state as Schemas["NodeStatus"]] }),
  };
  const list = $api.useInfiniteQuery(
    "get",
    "/nodes",
    { params: { query } },
    { ...PAGED, refetchInterval: ({ state: { data } }) => EVERY_MS * (data?.pages.length ?? 1) },
  );
  const columns = useMemo(() => COLUMNS.filter((column) => mine || column.key !== "floor"), [mine]);
  const filtered = FILTERS.some((name) => params.get(name));
  const isEmpty = list.data?.pages.every((page) => page.nodes.length === 0) && !list.hasNextPage;
  if (isEmpty && !filtered) return mine ? <NoNodesOfMine /> : <NoNodes />;
  return (
    <Card title={mine ? "My nodes" : "All nodes"} flush>
      <NodeFilters />
      <PagedTable
        label={mine ? "My nodes" : "All nodes"}
        query={list}
        rowsOf={(page) => page.nodes}
        skeleton={<SkeletonRows rows={8} />}
        columns={columns}
        rowKey={(node) => node.id}
        onRow={(node) => router.push(nodeHref(node.id))}
        rowHeight={56}
        empty={<NoMatches />}
      />
    </Card>
  );
}

const COLUMNS: Column<NodeView>[] = [
  {
    key: "name",
    title: "Name",
    width: "7.5rem",
    grow: 1.4,
    cell: (node) => (
      <>
        <Link href={nodeHref(node.id)} className="block truncate font-medium text-ink hover:underline">
          {node.name}
        </Link>
        <span className="hidden truncate text-muted text-sm sm:block">{node.owner_name}</span>
        <span className="block truncate text-muted text-sm sm:hidden">
          {node.tier} · {pluralize(node.profile.cores, "core")}
        </span>
      </>
    ),
  },
  { key: "state", title: "State", width: "11rem", cell: (node) => <NodeState node={node} /> },
  { key: "tier", title: "Tier", width: "6.5rem", grow: 1, from: "sm", cell: (node) => <NodeTier node={node} /> },
  {
    key: "hardware",
    title: "Hardware",
    width: "11rem",
    grow: 2,
    from: "md",
    cell: (node) => (
      <>
        <span className="block truncate">{coreText(node)}</span>
        <span className="block truncate text-muted text-sm" title={gpuText(node)}>
          {gpuText(node) || "no GPU"}
        </span>
      </>
    ),
  },
  { key: "isolation", title: "Isolation", width: "8rem", from: "xl", cell: (node) => node.profile.isolation },
  {
    key: "region",
    title: "Region",
    width: "6rem",
    grow: 1,
    from: "xl",
    cell: (node) => <span title={node.place}>{node.region || <span className="text-muted">none</span>}</span>,
  },
  {
    key: "reputation",
    title: "Reputation",
    width: "8.5rem",
    from: "lg",
    cell: (node) => (node.reliability == null ? "–" : <ScoreBar score={node.reliability} />),
  },
  { key: "running", title: "Running", width: "5.5rem", right: true, from: "sm", cell: (node) => node.running },
  {
    key: "floor",
    title: "Floor",
    width: "6rem",
    right: true,
    from: "xl",
    cell: (node) => (node.floor == null ? <span className="text-muted">none</span> : <Money micro={node.floor} />),
  },
  {
    key: "seen",
    title: "Last seen",
    width: "7.75rem",
    right: true,
    from: "lg",
    cell: (node) => <Ago ms={node.last_seen_ms} />,
  },
];

function NoNodesOfMine() {
  const lends = useRole("provider");
  return (
    <Card>
      <Empty title="You lend no machines yet" icon={Server}>
        {lends ? (
          <>
            <p>
              Any Linux computer that is sometimes idle can earn credits. You need a one-time code and one command, but no open
              port. Other people's jobs run in a sandbox.
            </p>
            <ButtonLink href="/nodes/add" look="primary" className="justify-self-center">
              <Plus /> Add a node
            </ButtonLink>
          </>
        ) : (
          <p>Your account may not lend machines. An administrator can give it the role “provider”.</p>
        )}
        <ButtonLink href={"/nodes?show=all" as Route} className="justify-self-center">
          See all nodes
        </ButtonLink>
      </Empty>
    </Card>
  );
}

function NoNodes() {
  return (
    <Card>
      <Empty title="The pool has no nodes yet" icon={Server}>
        <p>Jobs wait until somebody lends a machine.</p>
        <ButtonLink href="/nodes/add" look="primary" className="justify-self-center">
          Add the first one
        </ButtonLink>
      </Empty>
    </Card>
  );
}

function NoMatches() {
  return (
    <Empty title="No nodes match these filters">
      <Button className="justify-self-center" onClick={() => setParams(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>
        Clear all filters
      </Button>
    </Empty>
  );
}
