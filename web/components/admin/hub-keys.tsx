"use client";
import { Badge, type Tone } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Copy } from "@/components/ui/copy";
import { Confirm } from "@/components/ui/dialog";
import { QueryView, SkeletonRows } from "@/components/ui/states";
import { $api, answerOf, client, type Schemas } from "@/lib/api/client";

export function HubKeys() {
  const query = $api.useQuery("get", "/hub/keys");
  return (
    <Card
      title="Signing keys"
      note="Job tokens and receipts are signed by the current key; the next one is published before it is used. Nodes update themselves."
      aside={<Rotate />}
    >
      <QueryView query={query} skeleton={<SkeletonRows rows={3} />}>
        {(keys) => (
          <ul className="grid grid-cols-1 gap-3">
            {rows(keys).map((row) => (
              <li
                key={row.kid}
                className="flex flex-wrap items-center gap-x-3 gap-y-1 rounded-control border border-line px-3 py-2"
              >
                <span className="font-mono text-sm">{row.kid}</span>
                <Badge tone={row.tone}>{row.label}</Badge>
                <span className="ml-auto flex min-w-0 items-center gap-1">
                  <span className="truncate font-mono text-muted text-sm" title={row.key}>
                    {row.key}
                  </span>
                  <Copy text={row.key} label="Copy the public key" />
                </span>
              </li>
            ))}
          </ul>
        )}
      </QueryView>
    </Card>
  );
}

interface Row {
  kid: string;
  key: string;
  label: string;
  tone?: Tone;
}

function rows({ keys, current, next, retired }: Schemas["HubKeys"]): Row[] {
  const valid = Object.entries(keys).map(([kid, key]): Row => {
    if (kid === current) return { kid, key, label: "current", tone: "good" };
    if (kid === next) return { kid, key, label: "next", tone: "info" };
    return { kid, key, label: "still accepted" };
  });
  return [...valid, ...Object.entries(retired ?? {}).map(([kid, key]) => ({ kid, key, label: "retired" }))];
}

function Rotate() {
  return (
    <Confirm
      trigger={(open) => (
        <Button small look="danger" onClick={open}>
          Change the key
        </Button>
      )}
      title="Switch to the next signing key?"
      action="Change the key"
      danger
      confirm={() => answerOf(client.POST("/hub/keys/rotate"))}
      success={({ current }) => `${current} is now the signing key.`}
    >
      The previous key is accepted for another two days, and nodes update themselves. This is not enough if somebody has read the
      database: in that case enrol every node again.
    </Confirm>
  );
}
