"use client";
import { Button } from "@/components/ui/button";
import { Code } from "@/components/ui/copy";
import { Notice } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";

export function SignInLink({ accountId }: { accountId: string }) {
  const make = $api.useMutation("post", "/accounts/{account_id}/link");
  const ask = () => make.mutate({ params: { path: { account_id: accountId } } });
  return (
    <div className="grid gap-3">
      {make.data && (
        <>
          <Code text={make.data.link} label="Sign-in link" wrap />
          <p className="text-muted text-sm">
            It works once and expires <Ago ms={make.data.expires_at_ms} />. Whoever opens it first is signed in.
          </p>
        </>
      )}
      {make.error && <Notice tone="bad">{asProblem(make.error).detail}</Notice>}
      <div>
        <Button pending={make.isPending} onClick={ask}>
          {make.data ? "Create another link" : "Create a sign-in link"}
        </Button>
      </div>
    </div>
  );
}
