"use client";
// One node: what it does, what it earns, how far the pool relies on it, and what its owner says about it.
import { useState } from "react";
import { Back } from "@/components/ui/back";
import { MissingPage } from "@/components/ui/missing-page";
import { Page } from "@/components/ui/page";
import { Skeleton } from "@/components/ui/states";
import { type Tab, Tabs } from "@/components/ui/tabs";
import { errorToShow } from "@/lib/api/problem";
import { useParam } from "@/lib/use-params";
import { useUnsavedChanges } from "@/lib/use-unsaved-changes";
import { NodeActions } from "./node-actions";
import { NodeState, type NodeView } from "./node-cells";
import { NodeEarnings } from "./node-earnings";
import { NodeOverview } from "./node-overview";
import { NodeReputation } from "./node-reputation";
import { NodeRules } from "./node-rules";
import type { Draft } from "./rules-draft";
import { useNode } from "./use-node";

const BACK = <Back href="/nodes">Nodes</Back>;

export function NodeDetail({ id }: { id: string }) {
  const query = useNode(id);
  if (query.data) return <Known node={query.data} />;
  const error = errorToShow(query);
  if (error) return <MissingPage kind="node" id={id} above={BACK} error={error} retry={() => void query.refetch()} />;
  return <DetailSkeleton />;
}

function Known({ node }: { node: NodeView }) {
  const [tab, setTab] = useParam("tab");
  // Kept here, so that looking at another tab loses nothing that was typed.
  const [draft, setDraft] = useState<Draft | null>(null);
  const leaving = useUnsavedChanges(draft !== null);
  const tabs: Tab[] = [
    { value: "overview", label: "Overview", content: <NodeOverview node={node} /> },
    { value: "reputation", label: "Reputation", content: <NodeReputation node={node} /> },
  ];
  if (node.can_manage) {
    tabs.splice(1, 0, { value: "earnings", label: "Earnings", content: <NodeEarnings node={node} /> });
    tabs.push({
      value: "rules",
      label: draft ? "Rules (not saved)" : "Rules",
      content: <NodeRules node={node} draft={draft} setDraft={setDraft} />,
    });
  }
  return (
    <Page
      title={node.name}
      above={BACK}
      heading={
        <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
          <span className="min-w-0 break-words">{node.name}</span>
          <span className="font-normal text-base">
            <NodeState node={node} />
          </span>
        </span>
      }
      note={
        <>
          {node.sentence} Lent by {node.owner_name}.
        </>
      }
      actions={<NodeActions node={node} />}
    >
      {leaving}
      <Tabs label="About this node" tabs={tabs} value={tab || "overview"} onChange={setTab} />
    </Page>
  );
}

function DetailSkeleton() {
  return (
    <Page
      title="Node"
      above={BACK}
      heading={
        <>
          <span className="sr-only">Node</span>
          <Skeleton className="h-8 w-56" />
        </>
      }
    >
      <div role="status" aria-label="Loading" className="grid gap-5">
        <Skeleton className="h-9 w-80" />
        <Skeleton className="h-28" />
        <Skeleton className="h-96" />
      </div>
    </Page>
  );
}
