"use client";
// Lists that come in pages, asked for one by one as somebody scrolls.
import { useMemo } from "react";

interface Paged<Page> {
  data: { pages: Page[] } | undefined;
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  isFetchNextPageError: boolean;
  error: unknown;
  fetchNextPage: () => unknown;
}

/** How a table gets more rows. After an `error` it asks again only when somebody says so. */
export interface More {
  has: boolean;
  loading: boolean;
  error?: unknown;
  load: () => void;
}

/** All rows so far, and how a DataTable gets more. Options for $api.useInfiniteQuery: {...PAGED}. */
export function useRows<Page, Row>(query: Paged<Page>, rowsOf: (page: Page) => Row[]) {
  const pages = query.data?.pages;
  // biome-ignore lint/correctness/useExhaustiveDependencies: rowsOf is written in place and always the same
  const rows = useMemo(() => pages?.flatMap(rowsOf) ?? [], [pages]);
  return { rows, more: moreOf(query) };
}

export function moreOf(query: Omit<Paged<unknown>, "data">): More {
  return {
    has: query.hasNextPage,
    loading: query.isFetchingNextPage,
    error: query.isFetchNextPageError ? query.error : undefined,
    load: () => void query.fetchNextPage(),
  };
}

/** The hub's pages name the next one in `next`, and are asked for it with `after`. */
export const PAGED = {
  pageParamName: "after",
  // Not undefined: the library asks for page 0 then.
  initialPageParam: null as string | null,
  getNextPageParam: (page: { next?: string | null }) => page.next ?? undefined,
};

export interface Pages {
  pages: unknown[];
  pageParams: unknown[];
}

const FIRST_PAGE_MAX = 2000;

/** The list with its first page anew. What that page no longer has room for stays where it was; after a hole the list begins again. */
export function withFirst(list: Pages, page: unknown): Pages {
  const only = { pages: [page], pageParams: list.pageParams.slice(0, 1) };
  const [now, before] = [rowsIn(page), rowsIn(list.pages[0])];
  const next = (of: unknown) => (of as { next?: unknown }).next;
  if (!now || !before || next(page) == null || now.rows.length === 0) return only;
  const end = identity(now.rows.at(-1));
  const at = before.rows.findIndex((row) => identity(row) === end);
  const rows = [...now.rows, ...before.rows.slice(at + 1)];
  if (at < 0 || rows.length > FIRST_PAGE_MAX) return only;
  const first = { ...(page as object), [now.name]: rows, next: next(list.pages[0]) };
  return { pages: [first, ...list.pages.slice(1)], pageParams: list.pageParams };
}

function rowsIn(page: unknown): { name: string; rows: unknown[] } | undefined {
  const found = Object.entries(page as object).find(([, value]) => Array.isArray(value));
  return found && { name: found[0], rows: found[1] };
}

function identity(row: unknown): unknown {
  const { id, seq } = row as { id?: unknown; seq?: unknown };
  return id ?? seq ?? JSON.stringify(row);
}
