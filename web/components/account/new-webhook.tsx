"use client";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { CheckField, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { $api, type Schemas } from "@/lib/api/client";
import { useIdempotencyKey } from "@/lib/use-idempotency-key";
import { OneTimeSecret } from "./one-time-secret";

type WebhookEvent = NonNullable<Schemas["WebhookRequest"]["events"]>[number];

const EVENTS: [WebhookEvent, string][] = [
  ["group.complete", "A group is complete"],
  ["group.home", "A group's results are delivered to its home node"],
  ["job.finished", "A job has ended"],
];

export function NewWebhook({ done }: { done: () => void }) {
  const [url, setUrl] = useState("");
  const [events, setEvents] = useState<WebhookEvent[]>(["group.complete", "group.home"]);
  const queries = useQueryClient();
  const idempotency = useIdempotencyKey();
  const make = $api.useMutation("post", "/webhooks", {
    onSuccess: () => {
      idempotency.reset();
      void queries.invalidateQueries({ queryKey: ["get", "/webhooks"] });
    },
  });
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
  const submit = () => {
    const body = { url: url.trim(), events };
    make.mutate({ body, params: { header: idempotency.headers(body) } });
  };
  return (
    <Form send={submit} sending={make} action="Create the webhook" ready={Boolean(url.trim()) && events.length > 0} cancel={done}>
      <TextField
        label="Address"
        required
        type="url"
        maxLength={2000}
        placeholder="https://example.org/computepool"
        hint="https, and reachable from the internet"
        value={url}
        onChange={(event) => setUrl(event.target.value)}
      />
      <fieldset className="grid gap-2">
        <legend className="mb-1 font-medium text-sm">Send a message when</legend>
        {EVENTS.map(([event, words]) => (
          <CheckField
            key={event}
            label={event}
            hint={words}
            checked={events.includes(event)}
            onChange={(change) => setEvents(change.target.checked ? [...events, event] : events.filter((kept) => kept !== event))}
          />
        ))}
      </fieldset>
    </Form>
  );
}
