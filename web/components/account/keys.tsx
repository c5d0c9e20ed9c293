"use client";
// Keys of programs and sessions of browsers: one's own, or, for administrators, those of another account.
import { KeyRound } from "lucide-react";
import { useState } from "react";
import { Badge, StateBadge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { Confirm, Dialog } from "@/components/ui/dialog";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, answerOf, client, type Schemas } from "@/lib/api/client";
import { count } from "@/lib/format";
import { PAGED } from "@/lib/paging";
import { NewKey } from "./new-key";
import { RotateKey } from "./rotate-key";

type Key = Schemas["KeyView"];

/** The columns that fit into an administrator's dialog. */
const IN_DIALOG = ["name", "state", "used", "actions"];

export function Keys({ accountId }: { accountId?: string }) {
  const [making, setMaking] = useState(false);
  const [rotating, setRotating] = useState<Key | null>(null);
  const query = { sessions: true, ...(accountId && { account_id: accountId }) };
  const keys = $api.useInfiniteQuery("get", "/keys", { params: { query } }, PAGED);
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
      <PagedTable
        label="Keys and sessions"
        query={keys}
        rowsOf={(page) => page.keys}
        skeleton={<SkeletonRows rows={4} />}
        columns={columns(setRotating).filter((column) => !accountId || IN_DIALOG.includes(column.key))}
        rowKey={(key) => key.id}
        rowHeight={60}
        empty={
          <Empty icon={KeyRound} title="No keys yet">
            <p>Create one for a script, a server or another machine. The command line gets its own with `pool login`.</p>
          </Empty>
        }
      />
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
      width: "8rem",
      grow: 2,
      cell: (key) => (
        <span title={`${key.name} (${key.id})`}>
          {key.name} {key.this && <Badge tone="accent">in use here</Badge>}
        </span>
      ),
    },
    { key: "kind", title: "Type", width: "6.5rem", from: "md", cell: (key) => kindOf(key) },
    { key: "state", title: "State", width: "7rem", from: "sm", cell: (key) => <StateBadge state={key.state ?? "good"} /> },
    {
      key: "scopes",
      title: "Scopes",
      width: "8rem",
      grow: 1,
      from: "lg",
      cell: (key) => <span title={key.scopes?.join(", ")}>{key.scopes?.join(", ") ?? "all"}</span>,
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
      key: "actions",
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

function kindOf(key: Key): string {
  return key.kind === "cookie" ? "session" : "key";
}

function Revoke({ revoked }: { revoked: Key }) {
  const kind = kindOf(revoked);
  return (
    <Confirm
      trigger={(open) => (
        <Button small look="danger" onClick={open} aria-label={`Revoke ${revoked.name}`}>
          Revoke
        </Button>
      )}
      title={`Revoke ${revoked.name}?`}
      action={`Revoke the ${kind}`}
      danger
      confirm={() => answerOf(client.DELETE("/keys/{key_id}", { params: { path: { key_id: revoked.id } } }))}
    >
      Everything that uses this {kind} is signed out at once. This cannot be undone.
      {revoked.this && " You are using it now, so you will have to sign in again."}
    </Confirm>
  );
}

function EndAll({ accountId }: { accountId?: string | undefined }) {
  const query = accountId ? { account_id: accountId } : {};
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
      confirm={() => answerOf(client.DELETE("/keys", { params: { query } }))}
      success={({ revoked }) => `${count(revoked)} keys and sessions were revoked.`}
    >
      Every key and session{accountId ? " of this account" : " except the current one"} ends at once. Scripts, servers, command
      lines and other browsers have to sign in again. Nodes keep working.
    </Confirm>
  );
}
