import { Card } from "@/components/ui/card";
import { Skeleton } from "@/components/ui/states";
import { Table } from "@/components/ui/table";
import { Money } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { count } from "@/lib/format";
import { TRANSFERS } from "./transfer-labels";

/** All transfers that match the filters, added up by the hub. */
export function Sums({ sums }: { sums: Schemas["Sum"][] | undefined }) {
  return (
    <Card title="Totals" note="Of all transfers that match the filters">
      {sums === undefined ? (
        <Skeleton className="h-40" />
      ) : sums.length === 0 ? (
        <p className="text-muted">No transfers.</p>
      ) : (
        <Table
          className="text-sm"
          rows={sums}
          rowKey={(sum) => sum.kind}
          columns={[
            {
              title: "Kind",
              cell: (sum) => (
                <>
                  {TRANSFERS[sum.kind]} <span className="num text-muted">× {count(sum.transfers)}</span>
                </>
              ),
            },
            { title: "Moved", right: true, cell: (sum) => <Money micro={sum.moved} exact /> },
            { title: "Net", right: true, cell: (sum) => <Money micro={sum.gained - sum.lost} signed exact /> },
          ]}
        />
      )}
    </Card>
  );
}
