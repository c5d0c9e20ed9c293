"use client";
// All nodes of the pool, or one's own: a row each, as long as the list is.
import { Plus, Server } from "lucide-react";
import type { Route } from "next";
import { useRouter, useSearchParams } from "next/navigation";
import { useMemo } from "react";
import { Button, ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Page } from "@/components/ui/page";
import { Segments } from "@/components/ui/segments";
import { Empty, Failure, SkeletonRows } from "@/components/ui/states";
import { Ago, Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { errorToShow } from "@/lib/api/problem";
import { pluralize } from "@/lib/format";
import { PAGED, useRows } from "@/lib/paging";
import { useRole } from "@/lib/session";
import { setParams } from "@/lib/use-params";
import { cardWords, coreWords, NodeState, NodeTier, type NodeView, ScoreBar } from "./node-cells";
import { NodeFilters } from "./node-filters";

const EVERY_MS = 5000; // nodes of others tell nobody when they come and go
const MANY_EVERY_MS = 30_000; // every page that was scrolled to is asked again
const ROWS = 100;
const ALIVE = ["active", "paused", "draining"] as const;
const FILTERS = ["q", "state", "tier", "region"];

export function nodeHref(id: string): Route {
  return `/nodes?id=${encodeURIComponent(id)}` as Route;
}

export function NodeList() {
  const params = useSearchParams();
  const lends = useRole("provider");
  const show = params.get("show") ?? (lends ? "mine" : "all");
  return (
    <Page
      title="Nodes"
      note={show === "mine" ? "Machines that you lend to the pool." : "Every machine that is lent to the pool."}
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
              <Plus size={17} aria-hidden="true" /> Add a node
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
  const query = $api.useInfiniteQuery(
    "get",
    "/nodes",
    {
      params: {
        query: {
          mine,
          limit: ROWS,
          q: params.get("q") ?? "",
          tier: params.get("tier") ?? "",
          region: params.get("region") ?? "",
          // A node that was revoked or left is history: it is shown to who asks for it.
          state: state === "revoked" || state === "left" ? ["revoked"] : [...ALIVE],
          ...(state === "online" ? { online: true } : state && { status: [state as Schemas["NodeStatus"]] }),
        },
      },
    },
    {
      ...PAGED,
      refetchInterval: ({ state: { data } }) => ((data?.pages.length ?? 0) > 3 ? MANY_EVERY_MS : EVERY_MS),
    },
  );
  const { rows, more } = useRows(query, (page) => page.nodes);
  const columns = useMemo(() => COLUMNS.filter((column) => mine || column.key !== "floor"), [mine]);
  const error = errorToShow(query);
  if (error && !query.data) return <Failure error={error} retry={() => void query.refetch()} />;
  const filtered = FILTERS.some((name) => params.get(name));
  if (query.data && rows.length === 0 && !filtered && !more.has) return mine ? <NoneOfMine /> : <NoneAtAll />;
  return (
    <Card title={mine ? "My nodes" : "All nodes"} flush>
      <NodeFilters />
      {query.data ? (
        <DataTable
          label={mine ? "My nodes" : "All nodes"}
          columns={columns}
          rows={rows}
          rowKey={(node) => node.id}
          onRow={(node) => router.push(nodeHref(node.id))}
          more={more}
          rowHeight={56}
          empty={<NothingFits />}
        />
      ) : (
        <SkeletonRows rows={8} />
      )}
    </Card>
  );
}

const COLUMNS: Column<NodeView>[] = [
  {
    key: "name",
    title: "Name",
    width: "minmax(7.5rem,1.4fr)",
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
  { key: "tier", title: "Tier", width: "minmax(6.5rem,9rem)", from: "sm", cell: (node) => <NodeTier node={node} /> },
  {
    key: "hardware",
    title: "Hardware",
    width: "minmax(11rem,2fr)",
    from: "md",
    cell: (node) => (
      <>
        <span className="block truncate">{coreWords(node)}</span>
        <span className="block truncate text-muted text-sm" title={cardWords(node)}>
          {cardWords(node) || "no GPU"}
        </span>
      </>
    ),
  },
  { key: "isolation", title: "Isolation", width: "8rem", from: "xl", cell: (node) => node.profile.isolation },
  {
    key: "region",
    title: "Region",
    width: "minmax(6rem,9rem)",
    from: "xl",
    cell: (node) => <span title={node.place}>{node.region || <span className="text-muted">not set</span>}</span>,
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
    cell: (node) => (node.floor == null ? <span className="text-muted">not set</span> : <Money micro={node.floor} />),
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

function NoneOfMine() {
  const lends = useRole("provider");
  return (
    <Card>
      <Empty title="You lend no machines yet." icon={Server}>
        {lends ? (
          <>
            <p>
              Any Linux computer that is sometimes idle can earn credits. It takes a one-time code and one command; it needs no
              open port, and other people's jobs run in a sandbox.
            </p>
            <ButtonLink href="/nodes/add" look="primary" className="justify-self-center">
              <Plus size={17} aria-hidden="true" /> Add a node
            </ButtonLink>
          </>
        ) : (
          <p>Your account may not lend machines. An administrator can give it the role “provider”.</p>
        )}
        <ButtonLink href={"/nodes?show=all" as Route} className="justify-self-center">
          See everybody's nodes
        </ButtonLink>
      </Empty>
    </Card>
  );
}

function NoneAtAll() {
  return (
    <Card>
      <Empty title="The pool has no nodes yet." icon={Server}>
        <p>Jobs wait until somebody lends a machine.</p>
        <ButtonLink href="/nodes/add" look="primary" className="justify-self-center">
          Add the first one
        </ButtonLink>
      </Empty>
    </Card>
  );
}

function NothingFits() {
  return (
    <Empty title="No nodes match these filters.">
      <Button className="justify-self-center" onClick={() => setParams(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>
        Clear the filters
      </Button>
    </Empty>
  );
}
