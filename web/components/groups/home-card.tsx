"use client";
// The automatic delivery of a group's results to a node: request it, change it, cancel it.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Code, Copy } from "@/components/ui/copy";
import { Confirm, Dialog } from "@/components/ui/dialog";
import { SelectField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { bytes, pluralize } from "@/lib/format";
import { useFields } from "@/lib/use-fields";

type Group = Schemas["GroupView"];
const STATES = {
  off: { tone: "neutral", label: "not requested" },
  when_complete: { tone: "info", label: "when complete" },
  waiting: { tone: "warn", label: "waiting for the node" },
  arrived: { tone: "good", label: "delivered" },
} as const;

export function HomeCard({ group }: { group: Group }) {
  const { home } = group;
  const isRequested = home.state !== "off";
  const { tone, label } = STATES[home.state as keyof typeof STATES] ?? { tone: "neutral", label: home.state };
  return (
    <Card title="Result delivery" aside={<Badge tone={tone}>{label}</Badge>}>
      <div className="grid grid-cols-1 gap-4">
        {isRequested ? (
          <p className="first-letter:uppercase">{home.sentence}</p>
        ) : (
          <p>The results stay at the hub. One of your nodes can fetch them as soon as the group is complete.</p>
        )}
        {home.reason && <Notice tone="warn">{home.reason}</Notice>}
        {isRequested && <DeliveryFacts home={home} />}
        <div className="flex flex-wrap gap-2">
          <RequestDelivery group={group} />
          {isRequested && home.state !== "arrived" && <CancelDelivery group={group} />}
        </div>
        {!isRequested && <Code label="Command to deliver the results" text={`pool group return-home ${group.id} --home NODE`} />}
      </div>
    </Card>
  );
}

function DeliveryFacts({ home }: { home: Schemas["HomeView"] }) {
  const folder = home.path ?? home.folder;
  return (
    <Facts>
      <Fact name="Node">{home.node_name ?? "–"}</Fact>
      {home.at_ms && (
        <Fact name={home.state === "arrived" ? "Delivered" : "Last report"}>
          <Ago ms={home.at_ms} />
        </Fact>
      )}
      {home.files != null && (
        <Fact name="Content">
          {pluralize(home.items ?? 0, "item")}, {pluralize(home.files, "file")}, {bytes(home.bytes ?? 0)}
        </Fact>
      )}
      {folder && (
        <Fact name="Folder">
          <span className="inline-flex items-center gap-1 break-all font-mono text-sm">
            {folder}
            <Copy text={folder} label="Copy the folder" />
          </span>
        </Fact>
      )}
    </Facts>
  );
}

/** Shows the reply at once, whatever an earlier answer that is still on its way says. */
function useReturnHome(group: Group) {
  const queries = useQueryClient();
  const params = { path: { group_id: group.id } };
  const ask = $api.useMutation("post", "/groups/{group_id}/return-home", {
    onSuccess: (changed) => void queries.setQueryData(["get", "/groups/{group_id}", { params }], changed),
  });
  return { ...ask, request: (body: { home?: string; enabled: boolean }) => ask.mutateAsync({ params, body }) };
}

function RequestDelivery({ group }: { group: Group }) {
  const [open, setOpen] = useState(false);
  const again = group.home.state !== "off";
  return (
    <>
      <Button look={again ? "secondary" : "primary"} onClick={() => setOpen(true)}>
        {again ? "Request again or change the node" : "Deliver to a node"}
      </Button>
      <Dialog
        open={open}
        onClose={() => setOpen(false)}
        title="Deliver the results to a node"
        note="When the group is complete, one of your nodes fetches everything and verifies every file."
      >
        {open && <DeliveryForm group={group} close={() => setOpen(false)} />}
      </Dialog>
    </>
  );
}

function DeliveryForm({ group, close }: { group: Group; close: () => void }) {
  const nodes = $api.useQuery("get", "/nodes", { params: { query: { mine: true, limit: 500 } } });
  const mine = nodes.data?.nodes ?? [];
  const { fields, text } = useFields({ home: group.home.node_id ?? "" });
  const toast = useToast();
  const ask = useReturnHome(group);
  const send = async () => {
    await ask.request({ enabled: true, ...(fields.home && { home: fields.home }) });
    toast.success("Delivery requested.");
    close();
  };
  const options = [
    { value: "", label: "My only node" },
    ...mine.map((node) => ({ value: node.id, label: `${node.name}${node.online ? "" : " (offline)"}` })),
  ];
  return (
    <Form send={() => void send().catch(() => undefined)} sending={ask} action="Deliver to a node" cancel={close}>
      <SelectField label="Node" options={options} {...text("home")} />
      {nodes.data && mine.length === 0 && <Notice>You have no nodes. Add one first.</Notice>}
    </Form>
  );
}

function CancelDelivery({ group }: { group: Group }) {
  const { request } = useReturnHome(group);
  return (
    <Confirm
      trigger={(open) => <Button onClick={open}>Cancel the delivery</Button>}
      title="Leave the results at the hub?"
      action="Cancel the delivery"
      confirm={() => request({ enabled: false })}
    >
      The node fetches nothing more. You can request the delivery again at any time.
    </Confirm>
  );
}
