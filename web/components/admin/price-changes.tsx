import { TableHead } from "@/components/ui/table-head";
import { type Difference, nameLabel } from "./price-table";

export function PriceChanges({ changes }: { changes: Difference[] }) {
  if (changes.length === 0) return <p className="text-muted">No changes.</p>;
  return (
    <table className="w-full">
      <TableHead words={["What"]} numbers={["Before", "After"]} />
      <tbody>
        {changes.map((change) => (
          <tr key={change.name} className="border-line border-t">
            <th scope="row" className="py-1.5 text-left font-normal">
              {nameLabel(change.name)}
            </th>
            <td className="num text-right text-muted">{change.before ?? "–"}</td>
            <td className="num text-right font-medium">{change.after ?? "removed"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
