"use client";
import { Page } from "@/components/ui/page";
import { Notice } from "@/components/ui/states";
import { Tabs } from "@/components/ui/tabs";
import { useAccount, useRole } from "@/lib/session";
import { useParam } from "@/lib/use-params";
import { Balances } from "./balances";
import { MyPayouts } from "./my-payouts";
import { Statement } from "./statement";
import { GiveCredits } from "./top-up";

export function CreditsPage() {
  const isAdmin = useRole("admin");
  const { id } = useAccount();
  const [other] = useParam("account"); // for administrators
  const accountId = other || undefined;
  return (
    <Page
      title="Credits"
      note="What you can spend, what is on hold, and every transfer."
      actions={isAdmin && <GiveCredits account={accountId} />}
    >
      {accountId && accountId !== id && (
        <Notice>
          You are looking at the credits of <code>{accountId}</code>, not yours.
        </Notice>
      )}
      <Balances accountId={accountId} />
      <Tabs
        label="Credits"
        tabs={[
          { value: "statement", label: "Statement", content: <Statement accountId={accountId} /> },
          ...(accountId ? [] : [{ value: "payouts", label: "Payouts", content: <MyPayouts /> }]),
        ]}
      />
    </Page>
  );
}
