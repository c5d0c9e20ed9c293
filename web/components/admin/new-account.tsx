"use client";
import { Button } from "@/components/ui/button";
import { TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { Notice } from "@/components/ui/states";
import { $api } from "@/lib/api/client";
import { useFields } from "@/lib/use-fields";
import { type Role, RoleFields } from "./role-fields";
import { SignInLink } from "./sign-in-link";

export function NewAccount({ done }: { done: () => void }) {
  const { fields, set, text } = useFields({ name: "", roles: ["submitter", "provider"] as Role[] });
  const make = $api.useMutation("post", "/accounts");
  if (make.data) {
    return (
      <div className="grid gap-4">
        <Notice tone="good">
          {make.data.name} was created. {make.data.approval_id && "Part of this request waits for a second administrator."}
        </Notice>
        <p className="text-muted">Send them a sign-in link over a private channel.</p>
        <SignInLink accountId={make.data.id} />
        <div className="flex justify-end">
          <Button onClick={done}>Done</Button>
        </div>
      </div>
    );
  }
  const body = { name: fields.name.trim(), roles: fields.roles };
  const ready = Boolean(body.name) && body.roles.length > 0;
  return (
    <Form send={() => make.mutate({ body })} sending={make} action="Create the account" ready={ready} cancel={done}>
      <TextField
        label="Name"
        required
        maxLength={64}
        autoComplete="off"
        spellCheck={false}
        hint="Letters, digits and . _ @ + -; visible to everyone in the pool"
        {...text("name")}
      />
      <RoleFields roles={fields.roles} onRoles={(roles) => set({ roles })} />
    </Form>
  );
}
