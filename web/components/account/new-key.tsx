"use client";
import { CheckList, SelectField, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { $api, BASE_PATH, type Schemas } from "@/lib/api/client";
import { useRole } from "@/lib/session";
import { useFields } from "@/lib/use-fields";
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
  { value: "", label: "Never" },
  { value: String(7 * DAY_S), label: "In 7 days" },
  { value: String(30 * DAY_S), label: "In 30 days" },
  { value: String(90 * DAY_S), label: "In 90 days" },
  { value: String(365 * DAY_S), label: "In a year" },
];

export function NewKey({ accountId, done }: { accountId?: string | undefined; done: () => void }) {
  const { fields, set, text } = useFields({ name: "", scopes: [] as Scope[], life: String(90 * DAY_S) });
  const isAdmin = useRole("admin");
  const make = $api.useMutation("post", "/keys");
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
  const name = fields.name.trim();
  const body = {
    name,
    expires_in_s: fields.life ? Number(fields.life) : null,
    scopes: fields.scopes.length > 0 ? fields.scopes : null,
    ...(accountId && { account_id: accountId }),
  };
  return (
    <Form send={() => make.mutate({ body })} sending={make} action="Create the key" ready={Boolean(name)} cancel={done}>
      <TextField
        label="Name"
        required
        maxLength={200}
        placeholder="ci, backup server, laptop"
        hint="To recognise it later"
        {...text("name")}
      />
      <CheckList
        legend="Permissions"
        options={SCOPES.filter(([scope]) => scope !== "admin" || isAdmin)}
        chosen={fields.scopes}
        onChange={(scopes) => set({ scopes })}
      >
        <p className="text-muted text-sm">
          If none is selected, the key has all permissions of the account. Every scope includes read.
        </p>
      </CheckList>
      <SelectField label="Expires" options={LIVES} {...text("life")} />
    </Form>
  );
}
