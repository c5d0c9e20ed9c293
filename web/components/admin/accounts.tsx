"use client";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Dialog } from "@/components/ui/dialog";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { percent } from "@/lib/format";
import { PAGED, useRows } from "@/lib/paging";
import { useParam } from "@/lib/use-params";
import { AccountDetail } from "./account-detail";
import { NewAccount } from "./new-account";

export type Account = Schemas["AccountView"];

export function Accounts() {
  const [making, setMaking] = useState(false);
  const [id, setId] = useParam("id");
  const query = $api.useInfiniteQuery("get", "/accounts", { params: { query: { limit: 200 } } }, PAGED);
  const { rows, more } = useRows(query, (page) => page.accounts);
  const chosen = rows.find((account) => account.id === id);
  return (
    <Card
      flush
      title="Accounts"
      note="All accounts of this hub. Open one for its roles, limits and keys."
      aside={
        <Button look="primary" small onClick={() => setMaking(true)}>
          New account
        </Button>
      }
    >
      <QueryView query={query} skeleton={<SkeletonRows rows={6} />}>
        {() => (
          <DataTable
            label="Accounts"
            columns={columns(setId)}
            rows={rows}
            rowKey={(account) => account.id}
            onRow={(account) => setId(account.id)}
            more={more}
            rowHeight={56}
            empty={<Empty title="No accounts yet" />}
          />
        )}
      </QueryView>
      <Dialog open={making} onClose={() => setMaking(false)} title="New account">
        <NewAccount done={() => setMaking(false)} />
      </Dialog>
      <Dialog open={chosen !== undefined} onClose={() => setId("")} title={chosen?.name ?? ""} note={chosen?.id} wide>
        {chosen && <AccountDetail account={chosen} />}
      </Dialog>
    </Card>
  );
}

function columns(open: (id: string) => void): Column<Account>[] {
  return [
    {
      key: "name",
      title: "Name",
      width: "minmax(6rem,2fr)",
      cell: (account) => (
        <button
          type="button"
          className="max-w-full truncate text-left font-medium hover:underline"
          onClick={() => open(account.id)}
        >
          {account.name}
        </button>
      ),
    },
    {
      key: "roles",
      title: "Roles",
      width: "minmax(12.5rem,2fr)",
      cell: (account) => (
        <span className="inline-flex gap-1.5">
          {account.roles.map((role) => (
            <Badge key={role} tone={role === "admin" ? "accent" : "neutral"}>
              {role}
            </Badge>
          ))}
        </span>
      ),
    },
    {
      key: "submitter_reputation",
      title: "Reputation",
      width: "6rem",
      right: true,
      from: "md",
      cell: (account) => (account.submitter_reputation ? percent(account.submitter_reputation.score) : "–"),
    },
    {
      key: "limits",
      title: "Own limits",
      width: "8rem",
      from: "lg",
      cell: (account) => (hasLimits(account) ? "yes" : <span className="text-muted">hub default</span>),
    },
    { key: "since", title: "Created", width: "7.5rem", from: "sm", cell: (account) => <Ago ms={account.created_at_ms} /> },
  ];
}

function hasLimits(account: Account): boolean {
  return [account.jobs_open_max, account.spend_per_day_max, account.artifact_bytes_max, account.artifact_keep_s].some(
    (limit) => limit !== null && limit !== undefined,
  );
}
