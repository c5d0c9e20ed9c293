"use client";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { CheckField, SelectField, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { $api, BASE_PATH, type Schemas } from "@/lib/api/client";
import { useSession } from "@/lib/session";
import { useIdempotencyKey } from "@/lib/use-idempotency-key";
import { OneTimeSecret } from "./one-time-secret";

type Scope = NonNullable<Schemas["KeyRequest"]["scopes"]>[number];

const SCOPES: [Scope, string][] = [
  ["read", "Read jobs, results, nodes, credits, events, quotes"],
  ["submit", "Submit and cancel jobs, create groups, upload files"],
  ["provide", "Enrol, manage and revoke nodes, set floors"],
  ["account", "Manage keys, sessions and payouts"],
  ["admin", "Administer the hub"],
];
const DAY_S = 86_400;
const LIVES = [
  { value: "", label: "Never, until it is revoked" },
  { value: String(7 * DAY_S), label: "In 7 days" },
  { value: String(30 * DAY_S), label: "In 30 days" },
  { value: String(90 * DAY_S), label: "In 90 days" },
  { value: String(365 * DAY_S), label: "In a year" },
];

export function NewKey({ accountId, done }: { accountId?: string | undefined; done: () => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Scope[]>([]);
  const [life, setLife] = useState(String(90 * DAY_S));
  const { account } = useSession();
  const offered = SCOPES.filter(([scope]) => scope !== "admin" || account?.roles.includes("admin"));
  const queries = useQueryClient();
  const idempotency = useIdempotencyKey();
  const make = $api.useMutation("post", "/keys", {
    onSuccess: () => {
      idempotency.reset();
      void queries.invalidateQueries();
    },
  });
  if (make.data) {
    return (
      <OneTimeSecret
        secret={make.data.key}
        label="Key"
        use={`COMPUTEPOOL_HUB=${window.location.origin}${BASE_PATH} COMPUTEPOOL_KEY=… pool jobs`}
        done={done}
      />
    );
  }
  const submit = () => {
    const body = {
      name: name.trim(),
      expires_in_s: life ? Number(life) : null,
      scopes: scopes.length > 0 ? scopes : null,
      ...(accountId && { account_id: accountId }),
    };
    make.mutate({ body, params: { header: idempotency.headers(body) } });
  };
  return (
    <Form send={submit} sending={make} action="Create the key" ready={Boolean(name.trim())} cancel={done}>
      <TextField
        label="Name"
        required
        maxLength={200}
        placeholder="ci, backup server, laptop"
        hint="To recognize it later"
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <fieldset className="grid gap-2">
        <legend className="mb-1 font-medium text-sm">Permissions</legend>
        {offered.map(([scope, words]) => (
          <CheckField
            key={scope}
            label={scope}
            hint={words}
            checked={scopes.includes(scope)}
            onChange={(event) => setScopes(event.target.checked ? [...scopes, scope] : scopes.filter((kept) => kept !== scope))}
          />
        ))}
        <p className="text-muted text-sm">
          With none selected, the key may do everything this account may. Every scope includes read.
        </p>
      </fieldset>
      <SelectField label="Expires" options={LIVES} value={life} onChange={(event) => setLife(event.target.value)} />
    </Form>
  );
}
