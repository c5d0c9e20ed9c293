"use client";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Keys } from "@/components/account/keys";
import { GiveCredits } from "@/components/credits/top-up";
import { Button, ButtonLink } from "@/components/ui/button";
import { Notice } from "@/components/ui/states";
import { Tabs } from "@/components/ui/tabs";
import { useToast } from "@/components/ui/toast";
import { $api } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { useParam } from "@/lib/use-params";
import type { Account } from "./accounts";
import { Quotas } from "./quotas";
import { asRoles, RoleFields } from "./role-fields";
import { SignInLink } from "./sign-in-link";

export function AccountDetail({ account }: { account: Account }) {
  const [part, setPart] = useParam("part");
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
        value={part}
        onChange={setPart}
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
  const [roles, setRoles] = useState(asRoles(account.roles));
  const queries = useQueryClient();
  const toast = useToast();
  const save = $api.useMutation("put", "/accounts/{account_id}/roles", {
    onSuccess: (changed) => {
      toast.success(
        changed.approval_id
          ? "Saved: the roles change once a second administrator agrees."
          : `${changed.name} is now ${changed.roles.join(", ")}.`,
      );
      void queries.invalidateQueries();
    },
  });
  const same = roles.join() === asRoles(account.roles).join();
  return (
    <div className="grid gap-4">
      <RoleFields roles={roles} onRoles={setRoles} />
      {save.error && <Notice tone="bad">{asProblem(save.error).detail}</Notice>}
      <div className="flex justify-end">
        <Button
          look="primary"
          disabled={same || roles.length === 0}
          pending={save.isPending}
          onClick={() => save.mutate({ params: { path: { account_id: account.id } }, body: { roles } })}
        >
          Save the roles
        </Button>
      </div>
    </div>
  );
}
