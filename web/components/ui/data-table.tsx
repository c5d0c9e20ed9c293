"use client";
// A table of any length: only the visible rows exist. On a narrow screen the less important columns are hidden.
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, ArrowDownUp, ArrowUp } from "lucide-react";
import { type ReactNode, type RefObject, useEffect, useLayoutEffect, useRef } from "react";
import { asProblem } from "@/lib/api/problem";
import { type InfiniteList, type More, useRows } from "@/lib/paging";
import { Button } from "./button";
import { classes } from "./classes";
import { Empty, QueryView } from "./states";

export interface Column<Row> {
  key: string;
  title: string;
  hideTitle?: boolean; // for screen readers alone: a column of check boxes
  width: string; // at least; exactly if it does not grow
  grow?: number; // its share of the remaining width
  cell: (row: Row) => ReactNode;
  right?: boolean; // numbers
  fill?: boolean; // the content is as wide as the column: bars
  sort?: (row: Row) => string | number; // lets people sort by this column; all rows must be loaded
  from?: "sm" | "md" | "lg" | "xl" | "2xl"; // shown where the table is at least this wide
}

interface DataTableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  onRow?: (row: Row) => void; // The first cell needs a link or button, too: for keyboards and new tabs.
  more?: More;
  height?: string; // the table scrolls inside this
  rowHeight?: number;
  empty?: ReactNode;
  sort?: { by: string; onChange: (by: string) => void }; // a column's key; with a minus in front, the largest first
}

interface PagedTableProps<Page, Row> extends Omit<DataTableProps<Row>, "rows" | "more"> {
  query: InfiniteList<Page>;
  rowsOf: (page: Page) => Row[];
  skeleton?: ReactNode;
}

/** A list that the hub sends page by page. */
export function PagedTable<Page, Row>({ query, rowsOf, skeleton, ...table }: PagedTableProps<Page, Row>) {
  const { rows, more } = useRows(query, rowsOf);
  return (
    <QueryView query={query} skeleton={skeleton}>
      {() => <DataTable {...table} rows={rows} more={more} />}
    </QueryView>
  );
}

/** The rows sorted by the column that `by` names, if any. */
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

// By the width of the table itself: it may share the screen with a side bar and other panels.
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
  const seen = virtual.getVirtualItems();
  const last = seen.at(-1)?.index ?? 0;
  const end = rows.length > 0 ? rowKey(rows[rows.length - 1] as Row) : null;
  const asked = useRef<string | null>(null); // the last row when more were requested
  // After a page without rows, continuing is a person's decision: a search may have to go back through years.
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
      aria-rowcount={rows.length + 1}
      className="@container relative overflow-auto [overflow-anchor:none]"
      style={{ maxHeight: height }}
    >
      <div role="rowgroup" className="sticky top-0 z-10 border-line border-b bg-surface">
        <div role="row" aria-rowindex={1} className="flex">
          {columns.map((column) => (
            <div
              key={column.key}
              role="columnheader"
              aria-sort={sort && column.sort ? sortDirection(column.key, sort.by) : undefined}
              style={widthOf(column)}
              className={classes(
                "items-center px-3 py-2 text-muted text-sm",
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
              className={classes("absolute inset-x-0 flex border-line/70 border-b", onRow && "cursor-pointer hover:bg-hover")}
              style={{ height: rowHeight, transform: `translateY(${item.start}px)` }}
            >
              {columns.map((column) => (
                <div
                  key={column.key}
                  role="cell"
                  style={widthOf(column)}
                  className={classes(
                    "items-center overflow-hidden px-3",
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

function widthOf<Row>({ width, grow }: Column<Row>) {
  return { minWidth: width, flex: grow ? `${grow} 1 0` : `0 0 ${width}` };
}

function FurtherButton({ more }: { more: More }) {
  return (
    <>
      {more.error ? <span role="alert">{asProblem(more.error).detail}</span> : null}
      <Button small onClick={more.load}>
        {more.error ? "Try again" : "Search further back"}
      </Button>
    </>
  );
}

/** A search covers part of the history at a time. */
function NothingYet({ more }: { more: More }) {
  return (
    <Empty title="No matches so far">
      <div className="flex flex-wrap justify-center gap-3">
        <FurtherButton more={more} />
      </div>
    </Empty>
  );
}

function sortDirection(key: string, by: string): "ascending" | "descending" | "none" {
  return by === key ? "ascending" : by === `-${key}` ? "descending" : "none";
}

/** The first press puts the largest number or the letter A first; the third restores the original order. */
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
      <Icon size={13} className={classes("shrink-0", way === "none" && "opacity-50")} />
    </button>
  );
}

interface Anchored<Row> {
  rows: Row[];
  rowKey: (row: Row) => string;
  rowHeight: number;
  order: string;
}

/** Keeps the same rows in view when others are inserted above them, so that a click hits what one sees. */
function useAnchor<Row>(scroller: RefObject<HTMLDivElement | null>, list: Anchored<Row>): void {
  const shown = useRef(list);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only a change of the rows moves them
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
