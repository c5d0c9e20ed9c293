"use client";
import { StateBadge } from "@/components/ui/badge";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { Empty } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count } from "@/lib/format";
import { PAGED } from "@/lib/paging";

type Delivery = Schemas["DeliveryView"];

const COLUMNS: Column<Delivery>[] = [
  { key: "event", title: "Event", width: "8rem", grow: 1, cell: (delivery) => delivery.event },
  { key: "state", title: "State", width: "8rem", cell: (delivery) => <StateBadge state={delivery.state} /> },
  {
    key: "response",
    title: "Response",
    width: "6rem",
    grow: 1.5,
    from: "sm",
    cell: (delivery) => (
      <span title={delivery.reason ?? undefined}>{[delivery.status, delivery.reason].filter(Boolean).join(" ") || "–"}</span>
    ),
  },
  { key: "tries", title: "Attempts", width: "6rem", right: true, from: "sm", cell: (delivery) => count(delivery.tries) },
  { key: "when", title: "Created", width: "7.5rem", cell: (delivery) => <Ago ms={delivery.created_at_ms} /> },
  {
    key: "next",
    title: "Next attempt",
    width: "7rem",
    from: "md",
    cell: (delivery) => (delivery.next_try_ms ? <Ago ms={delivery.next_try_ms} /> : "–"),
  },
];

export function Deliveries({ webhookId }: { webhookId: string }) {
  const query = $api.useInfiniteQuery(
    "get",
    "/webhooks/{webhook_id}/deliveries",
    { params: { path: { webhook_id: webhookId }, query: {} } },
    // The stream of news does not report deliveries.
    { ...PAGED, refetchInterval: 2000 },
  );
  return (
    <PagedTable
      label="Deliveries"
      query={query}
      rowsOf={(page) => page.deliveries}
      columns={COLUMNS}
      rowKey={(delivery) => delivery.id}
      height="24rem"
      empty={<Empty title="Nothing sent yet" />}
    />
  );
}
