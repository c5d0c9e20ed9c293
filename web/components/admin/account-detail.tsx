"use client";
import { useState } from "react";
import { Keys } from "@/components/account/keys";
import { GiveCredits } from "@/components/credits/top-up";
import { ButtonLink } from "@/components/ui/button";
import { Form } from "@/components/ui/form";
import { Tabs } from "@/components/ui/tabs";
import { useToast } from "@/components/ui/toast";
import { $api } from "@/lib/api/client";
import type { Account } from "./accounts";
import { Quotas } from "./quotas";
import { type Role, RoleFields } from "./role-fields";
import { SignInLink } from "./sign-in-link";

export function AccountDetail({ account }: { account: Account }) {
  return (
    <div className="grid min-w-0 gap-4">
      <div className="flex flex-wrap gap-2">
        <GiveCredits account={account.name} small />
        <ButtonLink small href={{ pathname: "/credits", query: { account: account.id } }}>
          Credits
        </ButtonLink>
        <ButtonLink small href={{ pathname: "/audit", query: { account: account.id } }}>
          Events
        </ButtonLink>
      </div>
      <Tabs
        label="Account"
        param="part"
        tabs={[
          { value: "roles", label: "Roles", content: <Roles key={account.id} account={account} /> },
          { value: "limits", label: "Limits", content: <Quotas key={account.id} account={account} /> },
          { value: "keys", label: "Keys", content: <Keys accountId={account.id} /> },
          { value: "link", label: "Sign-in link", content: <SignInLink key={account.id} accountId={account.id} /> },
        ]}
      />
    </div>
  );
}

function Roles({ account }: { account: Account }) {
  const [roles, setRoles] = useState(account.roles as Role[]);
  const toast = useToast();
  const save = $api.useMutation("put", "/accounts/{account_id}/roles", {
    onSuccess: (changed) =>
      toast.success(
        changed.approval_id
          ? "Saved: the roles change once a second administrator approves."
          : `${changed.name} is now ${changed.roles.join(", ")}.`,
      ),
  });
  const isSame = [...roles].sort().join() === [...account.roles].sort().join();
  return (
    <Form
      send={() => save.mutate({ params: { path: { account_id: account.id } }, body: { roles } })}
      sending={save}
      action="Save the roles"
      ready={!isSame && roles.length > 0}
    >
      <RoleFields roles={roles} onRoles={setRoles} />
    </Form>
  );
}
