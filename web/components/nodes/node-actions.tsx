"use client";
// What may be done to a node. The hub says who may; whoever may not sees no button.
import { Pause, Play, Square } from "lucide-react";
import { Button } from "@/components/ui/button";
import { Confirm } from "@/components/ui/dialog";
import { useToast } from "@/components/ui/toast";
import { $api } from "@/lib/api/client";
import type { NodeView } from "./node-cells";
import { useRenewNodes } from "./use-node";

export function NodeActions({ node }: { node: NodeView }) {
  return (
    <>
      {node.can_manage && node.state !== "revoked" && <OwnersActions node={node} />}
      {node.can_pardon && <Pardon node={node} />}
    </>
  );
}

function OwnersActions({ node }: { node: NodeView }) {
  const toast = useToast();
  const renew = useRenewNodes();
  const state = $api.useMutation("post", "/nodes/{node_id}/state", {
    onError: toast.error,
    onSuccess: async (now) => {
      await renew();
      toast.success(now.sentence ?? "");
    },
  });
  const revoke = $api.useMutation("post", "/nodes/{node_id}/revoke");
  const path = { node_id: node.id };
  const set = (wanted: "active" | "paused" | "draining") =>
    state.mutateAsync({ params: { path }, body: { state: wanted } }).catch(() => undefined);
  const active = node.state === "active";
  return (
    <>
      <Button pending={state.isPending} onClick={() => void set(active ? "paused" : "active")}>
        {active ? <Pause size={16} aria-hidden="true" /> : <Play size={16} aria-hidden="true" />}
        {active ? "Pause" : "Resume"}
      </Button>
      {node.state !== "draining" && (
        <Confirm
          trigger={(open) => (
            <Button onClick={open}>
              <Square size={15} aria-hidden="true" /> Drain
            </Button>
          )}
          title={`Drain ${node.name}?`}
          action="Drain it"
          confirm={() => set("draining")}
        >
          It finishes its running jobs, returns the others to the queue and then stops. To start it again, run this there:{" "}
          <code className="font-mono text-sm">pool node start</code>.
        </Confirm>
      )}
      <Confirm
        trigger={(open) => (
          <Button look="danger" onClick={open}>
            Revoke
          </Button>
        )}
        title={`Revoke ${node.name} for good?`}
        action="Revoke it"
        danger
        confirm={async () => {
          await revoke.mutateAsync({ params: { path } });
          await renew();
          toast.success(`${node.name} was revoked.`);
        }}
      >
        Its key is refused, and its jobs run elsewhere. Use this for a machine that was lost or sold. This cannot be undone. The
        machine can only join again with a new code, as a new node, which inherits the violations of this one.
      </Confirm>
    </>
  );
}

function Pardon({ node }: { node: NodeView }) {
  const toast = useToast();
  const renew = useRenewNodes();
  const pardon = $api.useMutation("post", "/nodes/{node_id}/pardon");
  return (
    <Confirm
      trigger={(open) => <Button onClick={open}>Pardon</Button>}
      title={`Pardon ${node.name}?`}
      action="Pardon it"
      confirm={async () => {
        await pardon.mutateAsync({ params: { path: { node_id: node.id } } });
        await renew();
        toast.success(`${node.name} was pardoned.`);
      }}
    >
      Lifts its ban, clears its violations for wrong results, and restarts its streak. Use this once the fault is fixed, such as
      broken memory, or a program whose results cannot be compared.
    </Confirm>
  );
}
