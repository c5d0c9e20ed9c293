import { Table } from "@/components/ui/table";
import { type Difference, nameLabel } from "./price-table";

export function PriceChanges({ changes }: { changes: Difference[] }) {
  if (changes.length === 0) return <p className="text-muted">No changes.</p>;
  return (
    <Table
      rows={changes}
      rowKey={(change) => change.name}
      columns={[
        { title: "Price", cell: (change) => nameLabel(change.name) },
        { title: "Before", right: true, className: "text-muted", cell: (change) => change.before ?? "–" },
        { title: "After", right: true, className: "font-medium", cell: (change) => change.after ?? "removed" },
      ]}
    />
  );
}
