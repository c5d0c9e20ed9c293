"use client";
import { StateBadge } from "@/components/ui/badge";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Empty, QueryView } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count } from "@/lib/format";
import { PAGED, useRows } from "@/lib/paging";

type Delivery = Schemas["DeliveryView"];

const COLUMNS: Column<Delivery>[] = [
  { key: "event", title: "Event", width: "minmax(8rem,1fr)", cell: (delivery) => delivery.event },
  { key: "state", title: "State", width: "8rem", cell: (delivery) => <StateBadge state={delivery.state} /> },
  {
    key: "answer",
    title: "Answer",
    width: "minmax(6rem,1.5fr)",
    from: "sm",
    cell: (delivery) => (
      <span title={delivery.reason ?? undefined}>{[delivery.status, delivery.reason].filter(Boolean).join(" ") || "–"}</span>
    ),
  },
  { key: "tries", title: "Tries", width: "4rem", right: true, from: "sm", cell: (delivery) => count(delivery.tries) },
  { key: "when", title: "When", width: "7rem", cell: (delivery) => <Ago ms={delivery.created_at_ms} /> },
  {
    key: "next",
    title: "Next try",
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
    // Deliveries are no events of the stream: they are asked for while somebody looks.
    { ...PAGED, refetchInterval: 2000 },
  );
  const { rows, more } = useRows(query, (page) => page.deliveries);
  return (
    <QueryView query={query}>
      {() => (
        <DataTable
          label="Deliveries"
          columns={COLUMNS}
          rows={rows}
          rowKey={(delivery) => delivery.id}
          more={more}
          height="24rem"
          empty={<Empty title="Nothing sent yet" />}
        />
      )}
    </QueryView>
  );
}
