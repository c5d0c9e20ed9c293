"use client";
import { type ReactNode, useState } from "react";
import { StateBadge } from "@/components/ui/badge";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Ago, Money } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { PayoutDialog } from "./payout-dialog";

type Payout = Schemas["PayoutView"];

interface PayoutTableProps {
  payouts: Payout[];
  more: { has: boolean; loading: boolean; load: () => void };
  empty: ReactNode;
  owners?: boolean; // of all accounts: say whose
}

export function PayoutTable({ payouts, more, empty, owners = false }: PayoutTableProps) {
  const [shownId, setShownId] = useState<string | null>(null);
  const shown = payouts.find((payout) => payout.id === shownId) ?? null;
  return (
    <>
      <DataTable
        label="Payouts"
        columns={columns((payout) => setShownId(payout.id), owners)}
        rows={payouts}
        rowKey={(payout) => payout.id}
        onRow={(payout) => setShownId(payout.id)}
        more={more}
        rowHeight={60}
        empty={empty}
      />
      <PayoutDialog payout={shown} onClose={() => setShownId(null)} />
    </>
  );
}

function columns(open: (payout: Payout) => void, owners: boolean): Column<Payout>[] {
  const all: (Column<Payout> & { only?: boolean })[] = [
    {
      key: "owner",
      title: "Account",
      width: "minmax(6rem,1fr)",
      only: owners,
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
      title: "What it waits for",
      width: "minmax(10rem,3fr)",
      from: "md",
      cell: (payout) => <span title={payout.status}>{payout.status}</span>,
    },
    { key: "to", title: "To", width: "minmax(8rem,1fr)", from: "lg", cell: (payout) => payout.masked },
    { key: "when", title: "Requested", width: "7.5rem", from: "sm", cell: (payout) => <Ago ms={payout.created_at_ms} /> },
  ];
  return all.filter((column) => column.only ?? true);
}
