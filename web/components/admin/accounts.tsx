"use client";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { Dialog } from "@/components/ui/dialog";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { percent } from "@/lib/format";
import { PAGED } from "@/lib/paging";
import { useParam } from "@/lib/use-params";
import { AccountDetail } from "./account-detail";
import { NewAccount } from "./new-account";

export type Account = Schemas["AccountView"];

export function Accounts() {
  const [making, setMaking] = useState(false);
  const [id, setId] = useParam("id");
  const query = $api.useInfiniteQuery("get", "/accounts", { params: { query: { limit: 200 } } }, PAGED);
  const chosen = query.data?.pages.flatMap((page) => page.accounts).find((account) => account.id === id);
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
      <PagedTable
        label="Accounts"
        query={query}
        rowsOf={(page) => page.accounts}
        skeleton={<SkeletonRows rows={6} />}
        columns={columns(setId)}
        rowKey={(account) => account.id}
        onRow={(account) => setId(account.id)}
        rowHeight={56}
        empty={<Empty title="No accounts yet" />}
      />
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
      width: "6rem",
      grow: 2,
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
      width: "12.5rem",
      grow: 2,
      cell: (account) => account.roles.join(", "),
    },
    {
      key: "submitter_reputation",
      title: "Reputation",
      width: "7.5rem",
      right: true,
      from: "md",
      cell: (account) => (account.submitter_reputation ? percent(account.submitter_reputation.score) : "–"),
    },
    {
      key: "limits",
      title: "Limits",
      width: "8rem",
      from: "lg",
      cell: (account) => (hasLimits(account) ? "custom" : <span className="text-muted">hub default</span>),
    },
    { key: "since", title: "Created", width: "7.5rem", from: "sm", cell: (account) => <Ago ms={account.created_at_ms} /> },
  ];
}

function hasLimits(account: Account): boolean {
  const { jobs_open_max, spend_per_day_max, artifact_bytes_max, artifact_keep_s } = account;
  return [jobs_open_max, spend_per_day_max, artifact_bytes_max, artifact_keep_s].some((limit) => limit != null);
}
