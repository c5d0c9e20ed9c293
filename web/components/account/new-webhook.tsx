"use client";
import { CheckList, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { $api, type Schemas } from "@/lib/api/client";
import { useFields } from "@/lib/use-fields";
import { OneTimeSecret } from "./one-time-secret";

type WebhookEvent = NonNullable<Schemas["WebhookRequest"]["events"]>[number];

const EVENTS: [WebhookEvent, string][] = [
  ["group.complete", "A group is complete"],
  ["group.home", "A group's results are delivered to its home node"],
  ["job.finished", "A job has ended"],
];

export function NewWebhook({ done }: { done: () => void }) {
  const { fields, set, text } = useFields({ url: "", events: ["group.complete", "group.home"] as WebhookEvent[] });
  const make = $api.useMutation("post", "/webhooks");
  if (make.data) {
    return (
      <OneTimeSecret
        secret={make.data.secret}
        label="Secret of the webhook"
        use={'event = computepool.verify_webhook(request.headers, request.body, "whsec_…")'}
        done={done}
      />
    );
  }
  const body = { url: fields.url.trim(), events: fields.events };
  const ready = Boolean(body.url) && body.events.length > 0;
  return (
    <Form send={() => make.mutate({ body })} sending={make} action="Create the webhook" ready={ready} cancel={done}>
      <TextField
        label="Address"
        required
        type="url"
        maxLength={2000}
        placeholder="https://example.org/computepool"
        hint="https, and reachable from the internet"
        {...text("url")}
      />
      <CheckList legend="Send a message when" options={EVENTS} chosen={fields.events} onChange={(events) => set({ events })} />
    </Form>
  );
}
