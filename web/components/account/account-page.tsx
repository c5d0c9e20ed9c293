"use client";
import { Page } from "@/components/ui/page";
import { Tabs } from "@/components/ui/tabs";
import { useAccount } from "@/lib/session";
import { AboutMe } from "./about-me";
import { Keys } from "./keys";
import { Webhooks } from "./webhooks";

export function AccountPage() {
  const account = useAccount();
  return (
    <Page title="Account" heading={account.name} note={`Your account at this hub. Roles: ${account.roles.join(", ")}.`}>
      <Tabs
        label="Account"
        tabs={[
          { value: "about", label: "About you", content: <AboutMe /> },
          { value: "keys", label: "Keys and sessions", content: <Keys /> },
          { value: "webhooks", label: "Webhooks", content: <Webhooks /> },
        ]}
      />
    </Page>
  );
}
