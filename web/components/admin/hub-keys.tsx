"use client";
import { useQueryClient } from "@tanstack/react-query";
import { Badge, type Tone } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Copy } from "@/components/ui/copy";
import { Confirm } from "@/components/ui/dialog";
import { QueryView, SkeletonRows } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { $api, client, type Schemas } from "@/lib/api/client";

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
          <ul className="grid gap-3">
            {rows(keys).map((row) => (
              <li
                key={row.kid}
                className="flex flex-wrap items-center gap-x-3 gap-y-1 rounded-control border border-line px-3 py-2"
              >
                <span className="font-mono text-sm">{row.kid}</span>
                <Badge tone={row.tone}>{row.words}</Badge>
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
  words: string;
  tone: Tone;
}

function rows(keys: Schemas["HubKeys"]): Row[] {
  const good = Object.entries(keys.keys).map(([kid, key]): Row => {
    if (kid === keys.current) return { kid, key, words: "current", tone: "good" };
    if (kid === keys.next) return { kid, key, words: "next", tone: "info" };
    return { kid, key, words: "still accepted", tone: "neutral" };
  });
  const retired = Object.entries(keys.retired ?? {}).map(([kid, key]): Row => ({ kid, key, words: "retired", tone: "neutral" }));
  return [...good, ...retired];
}

function Rotate() {
  const queries = useQueryClient();
  const toast = useToast();
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
      confirm={async () => {
        const { data, error } = await client.POST("/hub/keys/rotate");
        if (error) throw error;
        toast.success(`${data.current} is now the signing key.`);
        await queries.invalidateQueries({ queryKey: ["get", "/hub/keys"] });
      }}
    >
      The previous key is accepted for another two days, and nodes update themselves. This does not help if somebody has read the
      database: then enrol every node again.
    </Confirm>
  );
}
