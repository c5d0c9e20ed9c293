"use client";
// The lowest price that an owner accepts: for this node, or for all nodes without a floor of their own.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { CreditsField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { parseCredits, plainCredits } from "@/lib/format";
import { useAccount } from "@/lib/session";
import type { NodeView } from "./node-cells";

export function NodeFloor({ node, earnings }: { node: NodeView; earnings: Schemas["NodeEarnings"] }) {
  const mine = useAccount().id === node.owner;
  const set = $api.useMutation("put", "/nodes/{node_id}/floor");
  const own = earnings.floor_is_default ? null : earnings.floor;
  return (
    <div className="grid gap-5">
      <Card title="Floor of this node" note="The lowest price per unit-hour, after the fee. Your own jobs always run.">
        <FloorForm
          key={own ?? "none"}
          label="Floor"
          floor={own ?? null}
          inherited={earnings.floor_is_default ? (earnings.floor ?? null) : null}
          save={(floor) => set.mutateAsync({ params: { path: { node_id: node.id } }, body: { floor } })}
        />
      </Card>
      {mine && <DefaultFloor />}
    </div>
  );
}

/** For the node's owner alone: an administrator would change their own default here. */
function DefaultFloor() {
  const query = $api.useQuery("get", "/market/floor");
  const set = $api.useMutation("put", "/market/floor");
  if (!query.data) return null;
  return (
    <Card title="Default floor of all your nodes" note={query.data.sentence}>
      <FloorForm
        key={query.data.floor ?? "none"}
        label="Default floor"
        floor={query.data.floor}
        inherited={null}
        save={(floor) => set.mutateAsync({ body: { floor } })}
      />
    </Card>
  );
}

interface FloorFormProps {
  label: string;
  floor: number | null;
  inherited: number | null;
  save: (floor: number | null) => Promise<Schemas["FloorView"]>;
}

function FloorForm({ label, floor, inherited, save }: FloorFormProps) {
  const toast = useToast();
  const [typed, setTyped] = useState(floor === null ? "" : plainCredits(floor));
  const put = useMutation({ mutationFn: save, onSuccess: ({ sentence }) => toast.success(sentence) });
  const send = () => put.mutate(parseCredits(typed));
  return (
    <Form send={send} sending={put} action={`Save the ${label.toLowerCase()}`} ready={parseCredits(typed) !== null}>
      <CreditsField
        label={label}
        unit="cr/h"
        placeholder="none"
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
      />
      {inherited !== null && (
        <Notice>
          This node has no floor of its own: your default of <Money micro={inherited} /> applies.
        </Notice>
      )}
      {floor !== null && (
        <div>
          <Button small disabled={put.isPending} onClick={() => put.mutate(null)}>
            Remove the {label.toLowerCase()}
          </Button>
        </div>
      )}
    </Form>
  );
}
