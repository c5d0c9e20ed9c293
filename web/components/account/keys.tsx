"use client";
// Keys for programs and sessions of browsers: the account's own, or, for administrators, those of another.
import { useQueryClient } from "@tanstack/react-query";
import { KeyRound } from "lucide-react";
import { useState } from "react";
import { Badge, StateBadge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Confirm, Dialog } from "@/components/ui/dialog";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Ago } from "@/components/ui/values";
import { $api, client, type Schemas } from "@/lib/api/client";
import { count } from "@/lib/format";
import { PAGED, useRows } from "@/lib/paging";
import { NewKey } from "./new-key";
import { RotateKey } from "./rotate-key";

type Key = Schemas["KeyView"];

/** What there is room for where an administrator looks at the keys of another. */
const IN_DIALOG = ["name", "state", "used", "do"];

export function Keys({ accountId }: { accountId?: string }) {
  const [making, setMaking] = useState(false);
  const [rotating, setRotating] = useState<Key | null>(null);
  const query = $api.useInfiniteQuery(
    "get",
    "/keys",
    { params: { query: { sessions: true, ...(accountId && { account_id: accountId }) } } },
    PAGED,
  );
  const { rows, more } = useRows(query, (page) => page.keys);
  return (
    <Card
      flush
      title="Keys and sessions"
      note="A key lets a program act for this account; a session is a signed-in browser."
      aside={
        <>
          <EndAll accountId={accountId} />
          <Button look="primary" small onClick={() => setMaking(true)}>
            New key
          </Button>
        </>
      }
    >
      <QueryView query={query} skeleton={<SkeletonRows rows={4} />}>
        {() => (
          <DataTable
            label="Keys and sessions"
            columns={columns(setRotating).filter((column) => !accountId || IN_DIALOG.includes(column.key))}
            rows={rows}
            rowKey={(key) => key.id}
            more={more}
            rowHeight={60}
            empty={
              <Empty icon={KeyRound} title="No keys yet">
                <p>Create one for a script, a server or another machine. The command line gets its own with `pool login`.</p>
              </Empty>
            }
          />
        )}
      </QueryView>
      <Dialog open={making} onClose={() => setMaking(false)} title="New key">
        <NewKey accountId={accountId} done={() => setMaking(false)} />
      </Dialog>
      <Dialog open={rotating !== null} onClose={() => setRotating(null)} title={`Replace ${rotating?.name ?? ""}`}>
        {rotating && <RotateKey replaced={rotating} done={() => setRotating(null)} />}
      </Dialog>
    </Card>
  );
}

function columns(rotate: (key: Key) => void): Column<Key>[] {
  return [
    {
      key: "name",
      title: "Name",
      width: "minmax(8rem,2fr)",
      cell: (key) => (
        <span title={`${key.name} (${key.id})`}>
          {key.name} {key.this && <Badge tone="accent">this one</Badge>}
        </span>
      ),
    },
    { key: "kind", title: "What", width: "6.5rem", from: "md", cell: (key) => (key.kind === "cookie" ? "session" : "key") },
    { key: "state", title: "State", width: "7rem", from: "sm", cell: (key) => <StateBadge state={key.state ?? "good"} /> },
    {
      key: "scopes",
      title: "For",
      width: "minmax(8rem,1fr)",
      from: "lg",
      cell: (key) => <span title={key.scopes?.join(", ")}>{key.scopes?.join(", ") ?? "everything"}</span>,
    },
    { key: "used", title: "Last used", width: "7.5rem", from: "md", cell: (key) => <Ago ms={key.last_used_ms} /> },
    {
      key: "ends",
      title: "Expires",
      width: "7.5rem",
      from: "lg",
      cell: (key) => <Ago ms={key.revoked_at_ms ?? key.expires_at_ms} />,
    },
    {
      key: "do",
      title: "Actions",
      width: "11.5rem",
      right: true,
      cell: (key) =>
        key.can_revoke && (
          <span className="flex justify-end gap-2">
            {key.kind !== "cookie" && (
              <Button small onClick={() => rotate(key)}>
                Replace
              </Button>
            )}
            <Revoke revoked={key} />
          </span>
        ),
    },
  ];
}

function Revoke({ revoked }: { revoked: Key }) {
  const queries = useQueryClient();
  const what = revoked.kind === "cookie" ? "session" : "key";
  return (
    <Confirm
      trigger={(open) => (
        <Button small look="danger" onClick={open} aria-label={`Revoke ${revoked.name}`}>
          Revoke
        </Button>
      )}
      title={`Revoke ${revoked.name}?`}
      action={`Revoke the ${what}`}
      danger
      confirm={async () => {
        const { error } = await client.DELETE("/keys/{key_id}", { params: { path: { key_id: revoked.id } } });
        if (error) throw error;
        await queries.invalidateQueries();
      }}
    >
      Anything that uses this {what} is refused at once. This cannot be undone.
      {revoked.this && " You are using it now, so you will have to sign in again."}
    </Confirm>
  );
}

function EndAll({ accountId }: { accountId?: string | undefined }) {
  const queries = useQueryClient();
  const toast = useToast();
  return (
    <Confirm
      trigger={(open) => (
        <Button small onClick={open}>
          Sign out everywhere
        </Button>
      )}
      title={accountId ? "Sign this account out everywhere?" : "Sign out everywhere else?"}
      action="Revoke all"
      danger
      confirm={async () => {
        const query = accountId ? { account_id: accountId } : {};
        const { data, error } = await client.DELETE("/keys", { params: { query } });
        if (error) throw error;
        toast.success(`${count(data.revoked)} keys and sessions were revoked.`);
        await queries.invalidateQueries();
      }}
    >
      Every key and every session{accountId ? " of this account" : " except the current one"} ends at once: scripts, servers,
      command lines and other browsers have to sign in again. Nodes keep working.
    </Confirm>
  );
}
