"use client";
import { useMemo } from "react";
import { StateBadge } from "@/components/ui/badge";
import { type Column, DataTable, sortRows } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Empty } from "@/components/ui/states";
import { count, megabytes, units } from "@/lib/format";
import { nodeHref } from "@/lib/links";
import { useParam } from "@/lib/use-params";
import type { MeshNode } from "./families";
import { Glyph } from "./legend";

const COLUMNS: Column<MeshNode>[] = [
  {
    key: "name",
    title: "Node",
    width: "7.8rem",
    grow: 2,
    sort: (node) => node.name,
    cell: (node) => (
      <Link href={nodeHref(node.id)} className="link">
        {node.name}
      </Link>
    ),
  },
  {
    key: "owner",
    title: "Owner",
    width: "6.5rem",
    grow: 1,
    from: "xl",
    sort: (node) => node.owner_name,
    cell: (node) => (node.mine ? "you" : node.owner_name),
  },
  {
    key: "tier",
    title: "Tier",
    width: "7.5rem",
    grow: 1.2,
    sort: (node) => node.tier,
    cell: (node) => (
      <span className="flex items-center gap-2" title={node.family}>
        <Glyph tier={node.tier} family={node.family} />
        <span className="truncate">{node.tier}</span>
      </span>
    ),
  },
  {
    key: "place",
    title: "Place",
    width: "9.7rem",
    grow: 1.4,
    from: "lg",
    sort: (node) => node.place,
    cell: (node) => node.place,
  },
  {
    key: "cores",
    title: "Cores",
    width: "5.2rem",
    right: true,
    from: "md",
    sort: (node) => node.cores,
    cell: (node) => units(node.cores * 1000),
  },
  {
    key: "ram",
    title: "RAM",
    width: "6.2rem",
    right: true,
    from: "xl",
    sort: (node) => node.ram_mb,
    cell: (node) => megabytes(node.ram_mb),
  },
  {
    key: "vram",
    title: "VRAM",
    width: "6.2rem",
    right: true,
    from: "md",
    sort: (node) => node.vram_mb,
    cell: (node) => (node.gpus > 0 ? megabytes(node.vram_mb) : "–"),
  },
  {
    key: "running",
    title: "Running",
    width: "6.6rem",
    right: true,
    sort: (node) => node.running,
    cell: (node) => count(node.running),
  },
  {
    key: "state",
    title: "State",
    width: "11.5rem",
    from: "sm",
    sort: (node) => node.status,
    cell: (node) => <StateBadge state={node.status} />,
  },
];

export function NodeTable({ nodes, onOpen }: { nodes: MeshNode[]; onOpen: (id: string) => void }) {
  const [by, setBy] = useParam("sort");
  const rows = useMemo(() => sortRows(nodes, COLUMNS, by), [nodes, by]);
  return (
    <DataTable
      label="Nodes that are online"
      columns={COLUMNS}
      rows={rows}
      rowKey={(node) => node.id}
      onRow={(node) => onOpen(node.id)}
      sort={{ by, onChange: setBy }}
      height="32rem"
      empty={<Empty title="No nodes match these filters">Remove a filter above the map to see more.</Empty>}
    />
  );
}
