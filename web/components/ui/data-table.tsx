"use client";
// A table of any length: only the rows that are seen exist. On a narrow screen the less important columns go.
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, type RefObject, useEffect, useLayoutEffect, useRef } from "react";
import { classes } from "./classes";

export interface Column<Row> {
  key: string;
  title: string;
  width: string; // of a CSS grid: "8rem", "minmax(10rem,2fr)"
  cell: (row: Row) => ReactNode;
  right?: boolean; // numbers
  from?: "sm" | "md" | "lg" | "xl"; // shown from this width of the screen on
}

interface DataTableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  onRow?: (row: Row) => void; // Give the first cell a real link, too: for keyboards and new tabs.
  more?: { has: boolean; loading: boolean; load: () => void };
  height?: string; // the table scrolls inside this
  rowHeight?: number;
  empty?: ReactNode;
  total?: number; // where it is known before all rows are there
}

const SHOWN = { sm: "hidden sm:flex", md: "hidden md:flex", lg: "hidden lg:flex", xl: "hidden xl:flex" };
const WIDTHS = { sm: 640, md: 768, lg: 1024, xl: 1280 };

export function DataTable<Row>(props: DataTableProps<Row>) {
  const {
    label,
    columns,
    rows,
    rowKey,
    onRow,
    more,
    height = "max(24rem, calc(100dvh - 19rem))",
    rowHeight = 48,
    empty,
    total,
  } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  useTemplate(scroller, columns);
  const seen = virtual.getVirtualItems();
  const last = seen.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more?.has && !more.loading && last >= rows.length - 20) more.load();
  }, [last, rows.length, more]);

  if (rows.length === 0 && empty && !more?.loading) return <>{empty}</>;
  return (
    <div
      ref={scroller}
      tabIndex={0}
      role="table"
      aria-label={label}
      aria-rowcount={(total ?? rows.length) + 1}
      className="relative overflow-auto"
      style={{ maxHeight: height }}
    >
      <div role="rowgroup" className="sticky top-0 z-10 border-line border-b bg-surface">
        <div role="row" aria-rowindex={1} className="grid grid-cols-(--columns)">
          {columns.map((column) => (
            <div
              key={column.key}
              role="columnheader"
              className={classes(
                "min-w-0 items-center px-3 py-2 text-muted text-sm",
                column.right && "justify-end text-right",
                column.from ? SHOWN[column.from] : "flex",
              )}
            >
              <span className="truncate">{column.title}</span>
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" className="relative" style={{ height: virtual.getTotalSize() }}>
        {seen.map((item) => {
          const row = rows[item.index] as Row;
          return (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the link in the first cell is the keyboard's way
            <div
              key={rowKey(row)}
              role="row"
              aria-rowindex={item.index + 2}
              onClick={onRow && ((event) => !(event.target as Element).closest("a,button,input,select") && onRow(row))}
              className={classes(
                "absolute inset-x-0 grid grid-cols-(--columns) border-line/70 border-b",
                onRow && "cursor-pointer hover:bg-hover",
              )}
              style={{ height: rowHeight, transform: `translateY(${item.start}px)` }}
            >
              {columns.map((column) => (
                <div
                  key={column.key}
                  role="cell"
                  className={classes(
                    "min-w-0 items-center overflow-hidden px-3",
                    column.right && "num justify-end text-right",
                    column.from ? SHOWN[column.from] : "flex",
                  )}
                >
                  <div className="min-w-0 truncate">{column.cell(row)}</div>
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

/** The grid's columns at this width of the screen, as one custom property for every row. */
function useTemplate<Row>(scroller: RefObject<HTMLDivElement | null>, columns: Column<Row>[]): void {
  useLayoutEffect(() => {
    const fit = () => {
      const shown = columns.filter((column) => !column.from || window.innerWidth >= WIDTHS[column.from]);
      scroller.current?.style.setProperty("--columns", shown.map((column) => column.width).join(" "));
    };
    fit();
    window.addEventListener("resize", fit);
    return () => window.removeEventListener("resize", fit);
  });
}
