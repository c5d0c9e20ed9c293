"use client";
// A table of any length: only the rows that are seen exist. Where it is narrow the less important columns go.
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, ArrowDownUp, ArrowUp } from "lucide-react";
import { type ReactNode, type RefObject, useEffect, useLayoutEffect, useRef } from "react";
import { asProblem } from "@/lib/api/problem";
import type { More } from "@/lib/paging";
import { Button } from "./button";
import { classes } from "./classes";
import { Empty } from "./states";

export interface Column<Row> {
  key: string;
  title: string;
  hideTitle?: boolean; // for screen readers alone: a column of ticks or buttons
  width: string; // of a CSS grid: "8rem", "minmax(10rem,2fr)"
  cell: (row: Row) => ReactNode;
  right?: boolean; // numbers
  fill?: boolean; // the content is as wide as the column: bars
  sort?: (row: Row) => string | number; // its heading sorts by this; only where all rows are there
  from?: "sm" | "md" | "lg" | "xl" | "2xl"; // shown where the table is at least this wide
}

interface DataTableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  onRow?: (row: Row) => void; // Give the first cell a real link, too: for keyboards and new tabs.
  more?: More;
  height?: string; // the table scrolls inside this
  rowHeight?: number;
  empty?: ReactNode;
  total?: number; // where it is known before all rows are there
  sort?: { by: string; onChange: (by: string) => void }; // a column's key, with a minus before it: the largest first
}

/** The rows in the order that `by` names; as they came where it names none. */
export function sortRows<Row>(rows: Row[], columns: Column<Row>[], by: string): Row[] {
  const value = columns.find((column) => column.key === by.replace(/^-/, ""))?.sort;
  if (!value) return rows;
  const way = by.startsWith("-") ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    return (
      way *
      (typeof a === "string" && typeof b === "string" ? a.localeCompare(b, "en", { numeric: true }) : a < b ? -1 : a > b ? 1 : 0)
    );
  });
}

// Widths of the table itself: a screen may have a side bar, and a table may share its row with something else.
const SHOWN = {
  sm: "hidden @min-[540px]:flex",
  md: "hidden @min-[680px]:flex",
  lg: "hidden @min-[880px]:flex",
  xl: "hidden @min-[1080px]:flex",
  "2xl": "hidden @min-[1140px]:flex",
};

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
    sort,
  } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  useAnchor(scroller, { rows, rowKey, rowHeight, order: sort?.by ?? "" });
  const isEmpty = rows.length === 0 && Boolean(empty) && !more?.loading;
  useColumnTemplate(scroller, columns, isEmpty);
  const seen = virtual.getVirtualItems();
  const last = seen.at(-1)?.index ?? 0;
  const end = rows.length > 0 ? rowKey(rows[rows.length - 1] as Row) : null;
  const asked = useRef<string | null>(null); // the row that more were asked for after
  // What brought no rows is not tried again by itself: a search may go back to the first day of the hub, page by page.
  const waits = Boolean(more?.has && !more.loading && (more.error || end === asked.current));
  useEffect(() => {
    if (!more?.has || more.loading || waits || last < rows.length - 20) return;
    asked.current = end;
    more.load();
  }, [last, rows.length, more, waits, end]);

  if (isEmpty) return more?.has ? <NothingYet more={more} /> : empty;
  return (
    <div
      ref={scroller}
      tabIndex={0}
      role="table"
      aria-label={label}
      aria-rowcount={(total ?? rows.length) + 1}
      className="@container relative overflow-auto [overflow-anchor:none]"
      style={{ maxHeight: height }}
    >
      <div role="rowgroup" className="sticky top-0 z-10 border-line border-b bg-surface">
        <div role="row" aria-rowindex={1} className="grid grid-cols-(--columns)">
          {columns.map((column) => (
            <div
              key={column.key}
              role="columnheader"
              aria-sort={sort && column.sort ? sortDirection(column.key, sort.by) : undefined}
              className={classes(
                "min-w-0 items-center px-3 py-2 text-muted text-sm",
                column.right && "justify-end text-right",
                column.from ? SHOWN[column.from] : "flex",
              )}
            >
              {sort && column.sort ? (
                <SortButton column={column} sort={sort} />
              ) : (
                <span className={column.hideTitle ? "sr-only" : "truncate"}>{column.title}</span>
              )}
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
                  <div className={classes("min-w-0 truncate", column.fill && "w-full")}>{column.cell(row)}</div>
                </div>
              ))}
            </div>
          );
        })}
      </div>
      {more && waits && (
        <div role="rowgroup">
          <div role="row">
            <div role="cell" className="sticky left-0 flex flex-wrap items-center justify-center gap-3 p-3 text-muted text-sm">
              <FurtherButton more={more} />
            </div>
          </div>
        </div>
      )}
    </div>
  );
}

function FurtherButton({ more }: { more: More }) {
  return (
    <>
      {more.error ? <span role="alert">{asProblem(more.error).detail}</span> : null}
      <Button small onClick={more.load}>
        {more.error ? "Try again" : "Look further"}
      </Button>
    </>
  );
}

/** A search looks at so much at a time, and may have found nothing in it. */
function NothingYet({ more }: { more: More }) {
  return (
    <Empty title="Nothing found so far">
      <div className="flex flex-wrap justify-center gap-3">
        <FurtherButton more={more} />
      </div>
    </Empty>
  );
}

function sortDirection(key: string, by: string): "ascending" | "descending" | "none" {
  return by === key ? "ascending" : by === `-${key}` ? "descending" : "none";
}

/** Numbers begin with the largest, words with A. A third press goes back to the order they came in. */
function SortButton<Row>({ column, sort }: { column: Column<Row>; sort: { by: string; onChange: (by: string) => void } }) {
  const { key, title, right } = column;
  const order = right ? ["", `-${key}`, key] : ["", key, `-${key}`];
  const way = sortDirection(key, sort.by);
  const Icon = { ascending: ArrowUp, descending: ArrowDown, none: ArrowDownUp }[way];
  return (
    <button
      type="button"
      className={classes("inline-flex min-w-0 items-center gap-1 hover:text-ink", way !== "none" && "font-medium text-ink")}
      onClick={() => sort.onChange(order[(order.indexOf(way === "none" ? "" : sort.by) + 1) % 3] ?? "")}
    >
      <span className="truncate">{title}</span>
      <Icon size={13} aria-hidden="true" className={classes("shrink-0", way === "none" && "opacity-50")} />
    </button>
  );
}

interface Anchored<Row> {
  rows: Row[];
  rowKey: (row: Row) => string;
  rowHeight: number;
  order: string;
}

/**
 * Keeps the same rows in view when others come above them: a click must not hit another one. Each change of the rows is
 * made up for once, from where the table is scrolled to at that moment; the browser's own anchoring is off.
 */
function useAnchor<Row>(scroller: RefObject<HTMLDivElement | null>, list: Anchored<Row>): void {
  const shown = useRef(list);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only other rows move what is seen
  useLayoutEffect(() => {
    const before = shown.current;
    shown.current = list;
    const { rows, rowKey, rowHeight, order } = list;
    const table = scroller.current;
    if (!table || table.scrollTop <= 0 || before.order !== order) return;
    const index = Math.floor(table.scrollTop / rowHeight);
    const first = before.rows[index];
    if (first === undefined) return;
    const key = before.rowKey(first);
    const same = rows[index];
    if (same !== undefined && rowKey(same) === key) return;
    const now = rows.findIndex((row) => rowKey(row) === key);
    if (now >= 0) table.scrollTop += (now - index) * rowHeight;
  }, [list.rows, list.order]);
}

/** The grid's columns at this width of the table, as one custom property for every row. */
function useColumnTemplate<Row>(scroller: RefObject<HTMLDivElement | null>, columns: Column<Row>[], isEmpty: boolean): void {
  const asked = columns.map((column) => column.width).join("|");
  // biome-ignore lint/correctness/useExhaustiveDependencies: an empty list has no table yet
  useLayoutEffect(() => {
    const table = scroller.current;
    if (!table) return;
    const widths = asked.split("|");
    // By what the browser shows: its own measure of the table counts the scroll bar, and a script's does not.
    const update = () => {
      const titles = table.querySelectorAll('[role="columnheader"]');
      const shown = widths.filter((_, at) => titles[at] && getComputedStyle(titles[at]).display !== "none");
      table.style.setProperty("--columns", shown.join(" "));
    };
    update();
    const watch = new ResizeObserver(update);
    watch.observe(table);
    return () => watch.disconnect();
  }, [asked, scroller, isEmpty]);
}
