"use client";
// What one may do with a node. The hub decides which buttons there are.
import { Pause, Play, Square } from "lucide-react";
import { Button } from "@/components/ui/button";
import { Confirm } from "@/components/ui/dialog";
import { useToast } from "@/components/ui/toast";
import { $api, answerOf, client } from "@/lib/api/client";
import type { NodeView } from "./node-cells";

export function NodeActions({ node }: { node: NodeView }) {
  return (
    <>
      {node.can_manage && node.state !== "revoked" && <OwnerActions node={node} />}
      {node.can_pardon && <Pardon node={node} />}
    </>
  );
}

function OwnerActions({ node }: { node: NodeView }) {
  const toast = useToast();
  const params = { path: { node_id: node.id } };
  const change = $api.useMutation("post", "/nodes/{node_id}/state", {
    onError: toast.error,
    onSuccess: (now) => toast.success(now.sentence ?? ""),
  });
  const active = node.state === "active";
  return (
    <>
      <Button pending={change.isPending} onClick={() => change.mutate({ params, body: { state: active ? "paused" : "active" } })}>
        {active ? <Pause /> : <Play />} {active ? "Pause" : "Resume"}
      </Button>
      {node.state !== "draining" && (
        <Confirm
          trigger={(open) => (
            <Button onClick={open}>
              <Square /> Drain
            </Button>
          )}
          title={`Drain ${node.name}?`}
          action="Drain"
          confirm={() => answerOf(client.POST("/nodes/{node_id}/state", { params, body: { state: "draining" } }))}
          success={(now) => now.sentence ?? ""}
        >
          The node finishes its running jobs, returns the others to the queue and then stops. To start it again, run this on the
          machine: <code className="font-mono text-sm">pool node start</code>.
        </Confirm>
      )}
      <Confirm
        trigger={(open) => (
          <Button look="danger" onClick={open}>
            Revoke
          </Button>
        )}
        title={`Revoke ${node.name} for good?`}
        action="Revoke"
        danger
        confirm={() => answerOf(client.POST("/nodes/{node_id}/revoke", { params }))}
        success={() => `${node.name} was revoked.`}
      >
        Its key is refused, and its jobs run elsewhere. Use this for a machine that was lost or sold. This cannot be undone. The
        machine can join again only with a new code, as a new node, which inherits the violations of this one.
      </Confirm>
    </>
  );
}

function Pardon({ node }: { node: NodeView }) {
  return (
    <Confirm
      trigger={(open) => <Button onClick={open}>Pardon</Button>}
      title={`Pardon ${node.name}?`}
      action="Pardon the node"
      confirm={() => answerOf(client.POST("/nodes/{node_id}/pardon", { params: { path: { node_id: node.id } } }))}
      success={() => `${node.name} was pardoned.`}
    >
      Lifts its ban, clears its violations for wrong results, and restarts its streak. Use this once the fault is fixed, such as
      broken memory, or a program whose results cannot be compared.
    </Confirm>
  );
}
