import type { ReactNode } from "react";
import { classes } from "./classes";

interface TableColumn<Row> {
  title?: ReactNode;
  cell: (row: Row) => ReactNode;
  right?: boolean; // numbers
  className?: string; // of its cells
}

interface TableProps<Row> {
  columns: TableColumn<Row>[]; // the first one names the row
  rows: Row[];
  rowKey: (row: Row, index: number) => string | number;
  label?: string; // makes it a region of its own, which scrolls sideways
  isCurrent?: (row: Row) => boolean;
  className?: string;
}

/** A short table that is there as a whole. */
export function Table<Row>({ columns, rows, rowKey, label, isCurrent, className }: TableProps<Row>) {
  const align = (column: TableColumn<Row>) => classes("px-2 first:pl-0 last:pr-0", column.right ? "num text-right" : "text-left");
  const table = (
    <table className={classes("w-full", className)}>
      {columns.some((column) => column.title) && (
        <thead>
          <tr className="text-muted text-sm">
            {columns.map((column, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: columns stay in their places
              <th key={at} scope="col" className={classes("pb-2 font-normal", align(column), column.className)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
      )}
      <tbody>
        {rows.map((row, index) => (
          <tr
            key={rowKey(row, index)}
            aria-current={isCurrent?.(row) || undefined}
            className={classes("border-line/70 border-t", isCurrent?.(row) && "bg-accent-soft")}
          >
            {columns.map((column, at) => {
              const Cell = at === 0 ? "th" : "td";
              return (
                <Cell
                  // biome-ignore lint/suspicious/noArrayIndexKey: columns stay in their places
                  key={at}
                  scope={at === 0 ? "row" : undefined}
                  className={classes("py-1.5 font-normal", align(column), column.className)}
                >
                  {column.cell(row)}
                </Cell>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
  if (!label) return table;
  return (
    <div role="region" aria-label={label} tabIndex={0} className="overflow-x-auto">
      {table}
    </div>
  );
}
