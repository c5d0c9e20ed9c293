"use client";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Dialog } from "@/components/ui/dialog";
import { QueryView, SkeletonRows } from "@/components/ui/states";
import { Moment } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { AccountName } from "./account-name";
import { PriceChanges } from "./price-changes";
import { asText, differences } from "./price-table";

type Version = Schemas["PriceVersion"];

export function PriceVersions() {
  const query = $api.useQuery("get", "/prices/versions");
  const [compared, setCompared] = useState<{ version: number; before: number } | null>(null);
  return (
    <Card title="Versions" note="Versions are never overwritten: every bill names the version that it was calculated with.">
      <QueryView query={query} skeleton={<SkeletonRows rows={3} />}>
        {({ versions }) => (
          <ol className="grid gap-px">
            {versions.map((version, at) => (
              <One key={version.version} version={version} before={versions[at + 1]} compare={setCompared} />
            ))}
          </ol>
        )}
      </QueryView>
      <Dialog
        wide
        open={compared !== null}
        onClose={() => setCompared(null)}
        title={compared ? `Changes in version ${compared.version}` : ""}
      >
        {compared && <Comparison {...compared} />}
      </Dialog>
    </Card>
  );
}

interface OneProps {
  version: Version;
  before: Version | undefined;
  compare: (pair: { version: number; before: number }) => void;
}

function One({ version, before, compare }: OneProps) {
  return (
    <li className="flex flex-wrap items-center justify-between gap-2 border-line border-t py-2.5 first:border-t-0">
      <div>
        <span className="font-medium">Version {version.version}</span>
        <p className="text-muted text-sm">
          <Moment ms={version.created_at_ms} />, by <AccountName id={version.created_by} />
        </p>
      </div>
      {before && (
        <Button small onClick={() => compare({ version: version.version, before: before.version })}>
          Show changes
        </Button>
      )}
    </li>
  );
}

function Comparison({ version, before }: { version: number; before: number }) {
  const newer = $api.useQuery("get", "/prices/{version}", { params: { path: { version } } });
  const older = $api.useQuery("get", "/prices/{version}", { params: { path: { version: before } } });
  return (
    <QueryView query={older} skeleton={<SkeletonRows rows={4} />}>
      {(old) => (
        <QueryView query={newer} skeleton={<SkeletonRows rows={4} />}>
          {(now) => <PriceChanges changes={differences(asText(old), asText(now))} />}
        </QueryView>
      )}
    </QueryView>
  );
}
