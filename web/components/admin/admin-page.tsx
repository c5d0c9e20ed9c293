"use client";
import { ShieldCheck } from "lucide-react";
import { Badge } from "@/components/ui/badge";
import { ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Page } from "@/components/ui/page";
import { Empty } from "@/components/ui/states";
import { Tabs } from "@/components/ui/tabs";
import { $api } from "@/lib/api/client";
import { useAccount } from "@/lib/session";
import { Accounts } from "./accounts";
import { Approvals } from "./approvals";
import { Checks } from "./checks";
import { Health } from "./health";
import { HubKeys } from "./hub-keys";
import { AllPayouts } from "./payouts";
import { Prices } from "./prices";

export function AdminPage() {
  const account = useAccount();
  if (account.roles.includes("admin")) return <ForAdmins />;
  return (
    <Page title="Admin">
      <Card>
        <Empty icon={ShieldCheck} title="This page is for administrators">
          <p>
            You are signed in as {account.name} ({account.roles.join(", ")}). Administrators manage accounts, prices and payouts
            here.
          </p>
          <div>
            <ButtonLink href="/account">Go to your account and keys</ButtonLink>
          </div>
        </Empty>
      </Card>
    </Page>
  );
}

function ForAdmins() {
  const approvals = $api.useQuery("get", "/approvals");
  const requested = $api.useQuery("get", "/payouts", { params: { query: { all: true, state: "requested", limit: 100 } } });
  const health = $api.useQuery("get", "/hub/health", undefined, { refetchInterval: 15_000 });
  const state = health.data?.state;
  return (
    <Page title="Admin" note="Accounts, prices, payouts, and the health of the hub.">
      <Tabs
        label="Admin"
        tabs={[
          { value: "accounts", label: "Accounts", content: <Accounts /> },
          {
            value: "payouts",
            label: <Counted words="Payouts" waiting={requested.data?.payouts.length} />,
            content: <AllPayouts />,
          },
          {
            value: "approvals",
            label: <Counted words="Approvals" waiting={approvals.data?.approvals.length} />,
            content: <Approvals />,
          },
          { value: "prices", label: "Prices", content: <Prices /> },
          {
            value: "health",
            label: (
              <span className="inline-flex items-center gap-2">
                Health {(state === "fail" || state === "warn") && <Badge tone={state === "fail" ? "bad" : "warn"}>{state}</Badge>}
              </span>
            ),
            content: <Health />,
          },
          { value: "checks", label: "Invariants", content: <Checks /> },
          { value: "keys", label: "Hub keys", content: <HubKeys /> },
        ]}
      />
    </Page>
  );
}

function Counted({ words, waiting }: { words: string; waiting: number | undefined }) {
  return (
    <span className="inline-flex items-center gap-2">
      {words} {waiting !== undefined && waiting > 0 && <Badge tone="warn">{waiting}</Badge>}
    </span>
  );
}
