import { Card } from "@/components/ui/card";
import { Skeleton } from "@/components/ui/states";
import { TableHead } from "@/components/ui/table-head";
import { Money } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { count } from "@/lib/format";
import { transferLabel } from "./transfer-labels";

/** Everything the filters let through, added up by the hub. */
export function Sums({ sums }: { sums: Schemas["Sum"][] | undefined }) {
  return (
    <Card title="Totals" note="Of the filtered transfers">
      {sums === undefined ? (
        <Skeleton className="h-40" />
      ) : sums.length === 0 ? (
        <p className="text-muted">No transfers.</p>
      ) : (
        <table className="w-full text-sm">
          <TableHead words={["Kind"]} numbers={["Moved", "Net"]} />
          <tbody>
            {sums.map((sum) => (
              <tr key={sum.kind} className="border-line border-t">
                <th scope="row" className="py-2 text-left font-normal">
                  {transferLabel(sum.kind)} <span className="num text-muted">× {count(sum.transfers)}</span>
                </th>
                <td className="py-2 pl-3 text-right">
                  <Money micro={sum.moved} exact />
                </td>
                <td className="py-2 pl-3 text-right">
                  <Money micro={sum.gained - sum.lost} signed exact />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Card>
  );
}
