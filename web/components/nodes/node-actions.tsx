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
          It finishes what it runs, gives the rest back, and then its agent ends. To bring it back, start it there again with{" "}
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
        Its key is refused from now on, and what it runs is run elsewhere. Meant for a machine that was lost or sold: this cannot
        be taken back. The machine could only join again with a new code, as another node, which would inherit what counts against
        this one.
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
      Its ban and its violations for wrong results are taken back, and its streak begins anew. For a fault that was mended, such
      as broken memory, or a program whose results cannot be compared.
    </Confirm>
  );
}
