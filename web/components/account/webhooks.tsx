"use client";
import { Webhook as WebhookIcon } from "lucide-react";
import { useState } from "react";
import { Badge, StateBadge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Confirm, Dialog } from "@/components/ui/dialog";
import { Empty, Notice, QueryView, SkeletonRows } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Ago } from "@/components/ui/values";
import { $api, answerOf, client, type Schemas } from "@/lib/api/client";
import { NewWebhook } from "./new-webhook";
import { Deliveries } from "./webhook-deliveries";

type Webhook = Schemas["WebhookView"];

export function Webhooks() {
  const [making, setMaking] = useState(false);
  const query = $api.useQuery("get", "/webhooks", undefined, { refetchInterval: 10_000 });
  return (
    <Card
      title="Webhooks"
      note="The hub calls your URL when a group is complete, its results are delivered, or a job ends."
      aside={
        <Button look="primary" small onClick={() => setMaking(true)}>
          New webhook
        </Button>
      }
    >
      <QueryView query={query} skeleton={<SkeletonRows rows={3} />}>
        {({ webhooks }) =>
          webhooks.length === 0 ? (
            <Empty icon={WebhookIcon} title="No webhooks yet">
              <p>Add an HTTPS URL to receive signed messages. Failed deliveries are retried.</p>
            </Empty>
          ) : (
            <ul className="grid gap-4">
              {webhooks.map((webhook) => (
                <li key={webhook.id}>
                  <One webhook={webhook} />
                </li>
              ))}
            </ul>
          )
        }
      </QueryView>
      <Dialog open={making} onClose={() => setMaking(false)} title="New webhook">
        <NewWebhook done={() => setMaking(false)} />
      </Dialog>
    </Card>
  );
}

function One({ webhook }: { webhook: Webhook }) {
  const [deliveries, setDeliveries] = useState(false);
  const disabled = webhook.disabled_at_ms != null;
  return (
    <div className="grid gap-3 rounded-control border border-line p-4">
      <div className="flex flex-wrap items-start justify-between gap-3">
        <div className="min-w-0">
          <p className="break-all font-mono text-sm">{webhook.url}</p>
          <p className="mt-1.5 flex flex-wrap items-center gap-1.5">
            <StateBadge state={disabled ? "disabled" : "active"} />
            {webhook.events.map((event) => (
              <Badge key={event}>{event}</Badge>
            ))}
          </p>
        </div>
        <Actions webhook={webhook} disabled={disabled} show={() => setDeliveries(true)} />
      </div>
      {disabled && <Notice tone="bad">Disabled: {webhook.disabled_reason}</Notice>}
      {!disabled && webhook.failing_since_ms && (
        <Notice tone="warn">
          No delivery has succeeded since <Ago ms={webhook.failing_since_ms} />. The hub keeps retrying.
        </Notice>
      )}
      <Dialog open={deliveries} onClose={() => setDeliveries(false)} title="Deliveries" note={webhook.url} wide>
        <Deliveries webhookId={webhook.id} />
      </Dialog>
    </div>
  );
}

function Actions({ webhook, disabled, show }: { webhook: Webhook; disabled: boolean; show: () => void }) {
  const toast = useToast();
  const params = { path: { webhook_id: webhook.id } };
  const test = $api.useMutation("post", "/webhooks/{webhook_id}/test", { onSuccess: show, onError: toast.error });
  const enable = $api.useMutation("post", "/webhooks/{webhook_id}/enable", { onError: toast.error });
  return (
    <div className="flex flex-wrap gap-2">
      {disabled && (
        <Button small look="primary" pending={enable.isPending} onClick={() => enable.mutate({ params })}>
          Enable
        </Button>
      )}
      <Button small pending={test.isPending} onClick={() => test.mutate({ params })}>
        Test
      </Button>
      <Button small onClick={show}>
        Deliveries
      </Button>
      <Confirm
        trigger={(open) => (
          <Button small look="danger" onClick={open}>
            Delete
          </Button>
        )}
        title="Delete this webhook?"
        action="Delete"
        danger
        confirm={() => answerOf(client.DELETE("/webhooks/{webhook_id}", { params }))}
        success={() => "Webhook deleted."}
      >
        Undelivered messages are dropped, and its secret stops working.
      </Confirm>
    </div>
  );
}
