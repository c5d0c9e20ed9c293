"use client";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { Notice } from "@/components/ui/states";
import { $api } from "@/lib/api/client";
import { useIdempotencyKey } from "@/lib/use-idempotency-key";
import { type Role, RoleFields } from "./role-fields";
import { SignInLink } from "./sign-in-link";

export function NewAccount({ done }: { done: () => void }) {
  const [name, setName] = useState("");
  const [roles, setRoles] = useState<Role[]>(["submitter", "provider"]);
  const queries = useQueryClient();
  const idempotency = useIdempotencyKey();
  const make = $api.useMutation("post", "/accounts", {
    onSuccess: () => {
      idempotency.reset();
      void queries.invalidateQueries({ queryKey: ["get", "/accounts"] });
    },
  });
  if (make.data) {
    return (
      <div className="grid gap-4">
        <Notice tone="good">
          {make.data.name} is there. {make.data.approval_id && "Part of this request waits for a second administrator."}
        </Notice>
        <p className="text-muted">Send them a sign-in link over a private channel.</p>
        <SignInLink accountId={make.data.id} />
        <div className="flex justify-end">
          <Button onClick={done}>Done</Button>
        </div>
      </div>
    );
  }
  const submit = () => {
    const body = { name: name.trim(), roles };
    make.mutate({ body, params: { header: idempotency.headers(body) } });
  };
  return (
    <Form send={submit} sending={make} action="Create the account" ready={Boolean(name.trim()) && roles.length > 0} cancel={done}>
      <TextField
        label="Name"
        required
        maxLength={64}
        autoComplete="off"
        spellCheck={false}
        hint="Letters, digits and . _ @ + -; visible to everyone in the pool"
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <RoleFields roles={roles} onRoles={setRoles} />
    </Form>
  );
}
