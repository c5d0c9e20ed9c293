"use client";
import { useState } from "react";
import { Back, Detail } from "@/components/ui/detail";
import { Page } from "@/components/ui/page";
import { type Tab, Tabs } from "@/components/ui/tabs";
import { $api } from "@/lib/api/client";
import { useUnsavedChanges } from "@/lib/use-unsaved-changes";
import { NodeActions } from "./node-actions";
import { NodeState, type NodeView } from "./node-cells";
import { NodeEarnings } from "./node-earnings";
import { NodeOverview } from "./node-overview";
import { NodeReputation } from "./node-reputation";
import { NodeRules } from "./node-rules";
import type { Draft } from "./rules-draft";

const EVERY_MS = 5000; // the stream of news does not report a node's load

export function NodeDetail({ id }: { id: string }) {
  const query = $api.useQuery("get", "/nodes/{node_id}", { params: { path: { node_id: id } } }, { refetchInterval: EVERY_MS });
  return (
    <Detail kind="node" id={id} query={query}>
      {(node) => <Known node={node} />}
    </Detail>
  );
}

function Known({ node }: { node: NodeView }) {
  // Kept here, so that another tab loses nothing that was typed.
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
      above={<Back kind="node" />}
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
      <Tabs label="About this node" tabs={tabs} />
    </Page>
  );
}
