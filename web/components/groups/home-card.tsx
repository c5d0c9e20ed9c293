"use client";
// Where the results of a group go by themselves: ask for it, change it, call it off.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Code, Copy } from "@/components/ui/copy";
import { Confirm, Dialog } from "@/components/ui/dialog";
import { SelectField } from "@/components/ui/field";
import { Failure, Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Ago } from "@/components/ui/values";
import { $api, client, type Schemas } from "@/lib/api/client";
import { bytes, pluralize } from "@/lib/format";

type Group = Schemas["GroupView"];
const TONES = { off: "neutral", when_complete: "info", waiting: "warn", arrived: "good" } as const;
const WORDS = { off: "stays at the hub", when_complete: "when complete", waiting: "on its way", arrived: "home" };

export function HomeCard({ group }: { group: Group }) {
  const { home } = group;
  const state = home.state as keyof typeof TONES;
  const wanted = state !== "off";
  return (
    <Card title="Return home" aside={<Badge tone={TONES[state] ?? "neutral"}>{WORDS[state] ?? home.state}</Badge>}>
      <div className="grid grid-cols-1 gap-4">
        <p className="first-letter:uppercase">{home.sentence}</p>
        {home.reason && <Notice tone="warn">{home.reason}</Notice>}
        {wanted && <DeliveryFacts home={home} />}
        <div className="flex flex-wrap gap-2">
          <Ask group={group} />
          {wanted && state !== "arrived" && <CallOff group={group} />}
        </div>
        {!wanted && <Code label="Command to deliver it" text={`pool group return-home ${group.id} --home NODE`} />}
      </div>
    </Card>
  );
}

function DeliveryFacts({ home }: { home: Schemas["HomeView"] }) {
  return (
    <Facts>
      <Fact name="Node">{home.node_name ?? "–"}</Fact>
      {home.at_ms && (
        <Fact name={home.state === "arrived" ? "Arrived" : "Last report"}>
          <Ago ms={home.at_ms} />
        </Fact>
      )}
      {home.files !== null && home.files !== undefined && (
        <Fact name="Delivered">
          {pluralize(home.items ?? 0, "item")}, {pluralize(home.files, "file")}, {bytes(home.bytes ?? 0)}
        </Fact>
      )}
      {(home.path ?? home.folder) && (
        <Fact name="Folder">
          <span className="inline-flex items-center gap-1 break-all font-mono text-sm">
            {home.path ?? home.folder}
            <Copy text={home.path ?? home.folder ?? ""} label="Copy the folder" />
          </span>
        </Fact>
      )}
    </Facts>
  );
}

function useReturnHome(group: Group) {
  const queries = useQueryClient();
  const path = { group_id: group.id };
  return async (body: { home?: string; enabled: boolean }) => {
    const { data, error } = await client.POST("/groups/{group_id}/return-home", { params: { path }, body });
    if (!data) throw error;
    const queryKey = ["get", "/groups/{group_id}", { params: { path } }];
    await queries.cancelQueries({ queryKey }); // it was asked before, and would bring back how it was
    queries.setQueryData(queryKey, data);
    void queries.invalidateQueries({ queryKey });
  };
}

function Ask({ group }: { group: Group }) {
  const [open, setOpen] = useState(false);
  const again = group.home.state !== "off";
  return (
    <>
      <Button look={again ? "secondary" : "primary"} onClick={() => setOpen(true)}>
        {again ? "Request again or change the home" : "Deliver to a node"}
      </Button>
      <Dialog
        open={open}
        onClose={() => setOpen(false)}
        title="Deliver the results to a node"
        note="One of your nodes fetches everything when the group is complete, and verifies every file."
      >
        {open && <Choose group={group} close={() => setOpen(false)} />}
      </Dialog>
    </>
  );
}

function Choose({ group, close }: { group: Group; close: () => void }) {
  const nodes = $api.useQuery("get", "/nodes", { params: { query: { mine: true, limit: 500 } } });
  const mine = nodes.data?.nodes ?? [];
  const [home, setHome] = useState(group.home.node_id ?? "");
  const [pending, setPending] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const ask = useReturnHome(group);
  const toast = useToast();
  const send = async () => {
    setPending(true);
    setError(null);
    try {
      await ask({ enabled: true, ...(home && { home }) });
      toast.success("Delivery requested.");
      close();
    } catch (refusal) {
      setError(refusal);
    } finally {
      setPending(false);
    }
  };
  const options = [
    { value: "", label: "my only node" },
    ...mine.map((node) => ({ value: node.id, label: `${node.name}${node.online ? "" : " (offline)"}` })),
  ];
  return (
    <>
      <SelectField label="Node" options={options} value={home} onChange={(event) => setHome(event.target.value)} />
      {nodes.data && mine.length === 0 && <Notice>You have no nodes. Add one first.</Notice>}
      {error !== null && <Failure error={error} />}
      <div className="flex justify-end gap-2">
        <Button onClick={close}>Not now</Button>
        <Button look="primary" pending={pending} onClick={() => void send()}>
          Deliver to a node
        </Button>
      </div>
    </>
  );
}

function CallOff({ group }: { group: Group }) {
  const ask = useReturnHome(group);
  return (
    <Confirm
      trigger={(open) => <Button onClick={open}>Cancel the delivery</Button>}
      title="Leave the results at the hub?"
      action="Cancel the delivery"
      confirm={() => ask({ enabled: false })}
    >
      The node fetches nothing more. You can request it again at any time.
    </Confirm>
  );
}
