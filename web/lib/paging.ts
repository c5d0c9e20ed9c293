"use client";
// Lists that the hub sends page by page, as somebody scrolls.
import { useMemo } from "react";
import type { QueryStatus } from "./api/problem";

export interface InfiniteList<Page> extends QueryStatus {
  data: { pages: Page[] } | undefined;
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  isFetchNextPageError: boolean;
  fetchNextPage: () => unknown;
  refetch: () => unknown;
}

/** How a table gets more rows. After an error it tries again only when somebody asks for it. */
export interface More {
  has: boolean;
  loading: boolean;
  error?: unknown;
  load: () => void;
}

/** All rows so far, and how a DataTable gets more. */
export function useRows<Page, Row>(query: InfiniteList<Page>, rowsOf: (page: Page) => Row[]) {
  const pages = query.data?.pages;
  // biome-ignore lint/correctness/useExhaustiveDependencies: rowsOf is written in place and always the same
  const rows = useMemo(() => pages?.flatMap(rowsOf) ?? [], [pages]);
  const more: More = {
    has: query.hasNextPage,
    loading: query.isFetchingNextPage,
    error: query.isFetchNextPageError ? query.error : undefined,
    load: () => void query.fetchNextPage(),
  };
  return { rows, more };
}

/** Options of $api.useInfiniteQuery: a page names the next one in `next`, which is requested with `after`. */
export const PAGED = {
  pageParamName: "after",
  // Not undefined: the library would request page 0.
  initialPageParam: null as string | null,
  getNextPageParam: (page: { next?: string | null }) => page.next ?? undefined,
};

export interface Pages {
  pages: unknown[];
  pageParams: unknown[];
}

const PAGE_ROWS_MAX = 2000;

/**
 * The list after its page `at` was fetched again. Rows that new ones pushed off its end stay, and rows that moved up into
 * it leave the later pages. Where a new first page shares no row with the list, the list begins again.
 */
export function withPage(list: Pages, at: number, page: unknown): Pages {
  const fresh = rowsIn(page);
  const ids = new Set(fresh.map(rowId));
  const isFresh = (row: unknown) => ids.has(rowId(row));
  const old = list.pages.slice(at);
  const end = old.findLastIndex((one) => rowsIn(one).some(isFresh));
  const cut = { pages: [...list.pages.slice(0, at), page], pageParams: list.pageParams.slice(0, at + 1) };
  if (nextOf(page) == null || (at === 0 && end < 0)) return cut;
  const kept = old.map((one, index) => {
    const rows = rowsIn(one);
    if (index > Math.max(end, 0)) return rows;
    return index < end ? [] : rows.slice(rows.findLastIndex(isFresh) + 1 || rows.length);
  });
  const [pushed = [], ...later] = kept;
  if (fresh.length + pushed.length > PAGE_ROWS_MAX) return cut;
  const first = withRows(pushed.length > 0 ? { ...(page as object), next: nextOf(old[0]) } : page, [...fresh, ...pushed]);
  const pages = [first, ...later.map((rows, index) => withRows(old[index + 1], rows))];
  while (pages.length > 1 && rowsIn(pages.at(-1)).length === 0) pages.pop();
  return { pages: [...list.pages.slice(0, at), ...pages], pageParams: list.pageParams.slice(0, at + pages.length) };
}

/** The ids of a list's rows, page by page. */
export function rowIds({ pages }: Pages): string[][] {
  return pages.map((page) => rowsIn(page).map(rowId));
}

function nextOf(page: unknown): unknown {
  return (page as { next?: unknown }).next;
}

/** A page has one array: its rows. */
function rowsIn(page: unknown): unknown[] {
  return Object.values(page as object).find(Array.isArray) ?? [];
}

function withRows(page: unknown, rows: unknown[]): unknown {
  const [name = ""] = Object.entries(page as object).find(([, value]) => Array.isArray(value)) ?? [];
  return { ...(page as object), [name]: rows };
}

function rowId(row: unknown): string {
  const { id, seq, key, job_id } = row as { id?: string; seq?: number; key?: string | null; job_id?: string | null };
  // Only a group's items have keys: there a job is one row.
  return String(id ?? seq ?? (key === undefined ? undefined : (job_id ?? key)) ?? JSON.stringify(row));
}
