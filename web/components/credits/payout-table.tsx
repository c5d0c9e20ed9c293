"use client";
import { type ReactNode, useState } from "react";
import { StateBadge } from "@/components/ui/badge";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { SkeletonRows } from "@/components/ui/states";
import { Ago, Money } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import type { InfiniteList } from "@/lib/paging";
import { PayoutDialog } from "./payout-dialog";

type Payout = Schemas["PayoutView"];

interface PayoutTableProps {
  query: InfiniteList<{ payouts: Payout[] }>;
  empty: ReactNode;
  owners?: boolean; // of all accounts
}

export function PayoutTable({ query, empty, owners = false }: PayoutTableProps) {
  const [shownId, setShownId] = useState<string | null>(null);
  const shown = query.data?.pages.flatMap((page) => page.payouts).find((payout) => payout.id === shownId);
  const open = (payout: Payout) => setShownId(payout.id);
  return (
    <>
      <PagedTable
        label="Payouts"
        query={query}
        rowsOf={(page) => page.payouts}
        skeleton={<SkeletonRows rows={4} />}
        columns={columns(open).filter((column) => owners || column.key !== "owner")}
        rowKey={(payout) => payout.id}
        onRow={open}
        rowHeight={60}
        empty={empty}
      />
      <PayoutDialog payout={shown ?? null} onClose={() => setShownId(null)} />
    </>
  );
}

function columns(open: (payout: Payout) => void): Column<Payout>[] {
  return [
    {
      key: "owner",
      title: "Account",
      width: "6rem",
      grow: 1,
      cell: (payout) => (
        <button type="button" className="max-w-full truncate text-left font-medium hover:underline" onClick={() => open(payout)}>
          {payout.account_name}
        </button>
      ),
    },
    {
      key: "amount",
      title: "Amount",
      width: "7.5rem",
      right: true,
      cell: (payout) => (
        <button type="button" className="hover:underline" onClick={() => open(payout)} aria-label="Open this payout">
          <Money micro={payout.amount} />
        </button>
      ),
    },
    { key: "state", title: "State", width: "8rem", cell: (payout) => <StateBadge state={payout.state} title={payout.status} /> },
    {
      key: "status",
      title: "Status",
      width: "10rem",
      grow: 3,
      from: "md",
      cell: (payout) => <span title={payout.status}>{payout.status}</span>,
    },
    { key: "to", title: "To", width: "8rem", grow: 1, from: "lg", cell: (payout) => payout.masked },
    { key: "when", title: "Requested", width: "7.5rem", from: "sm", cell: (payout) => <Ago ms={payout.created_at_ms} /> },
  ];
}
