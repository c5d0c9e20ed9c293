"use client";
// The least that an owner takes: for this node, or for all that have no floor of their own.
import { type FormEvent, useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { TextField } from "@/components/ui/field";
import { Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { credits, parseCredits } from "@/lib/format";
import { useAccount } from "@/lib/session";
import type { NodeView } from "./node-cells";
import { useRenewNodes } from "./use-node";

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

/** Only its owner's: an administrator who looks at somebody's node would set his own. */
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
  const renew = useRenewNodes();
  const [typed, setTyped] = useState(floor === null ? "" : credits(floor, { exact: true }).replaceAll(",", ""));
  const [error, setError] = useState("");
  const [pending, setPending] = useState(false);
  const put = async (wanted: number | null) => {
    setPending(true);
    setError("");
    try {
      const view = await save(wanted);
      toast.success(view.sentence);
      await renew();
    } catch (refusal) {
      setError(asProblem(refusal).detail);
    } finally {
      setPending(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const wanted = parseCredits(typed);
    if (wanted === null) setError("Enter an amount of credits, such as 6.50.");
    else void put(wanted);
  };
  return (
    <form onSubmit={submit} className="grid gap-3">
      <TextField
        label={label}
        inputMode="decimal"
        unit="cr/h"
        placeholder="No minimum price set"
        value={typed}
        error={error}
        onChange={(event) => setTyped(event.target.value)}
      />
      {inherited !== null && (
        <Notice>
          This node has no floor of its own: your default of <Money micro={inherited} /> applies.
        </Notice>
      )}
      <div className="flex flex-wrap gap-2">
        <Button type="submit" look="primary" pending={pending}>
          Save the {label.toLowerCase()}
        </Button>
        {floor !== null && (
          <Button disabled={pending} onClick={() => void put(null)}>
            Clear
          </Button>
        )}
      </div>
    </form>
  );
}
