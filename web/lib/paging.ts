"use client";
// Lists that come in pages, asked for one by one as somebody scrolls.
import { useMemo } from "react";

interface Paged<Page> {
  data: { pages: Page[] } | undefined;
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  fetchNextPage: () => unknown;
}

/** All rows so far, and how a DataTable gets more. Options for $api.useInfiniteQuery: {...PAGED}. */
export function useRows<Page, Row>(query: Paged<Page>, rowsOf: (page: Page) => Row[]) {
  const pages = query.data?.pages;
  // biome-ignore lint/correctness/useExhaustiveDependencies: rowsOf is written in place and always the same
  const rows = useMemo(() => pages?.flatMap(rowsOf) ?? [], [pages]);
  return {
    rows,
    more: { has: query.hasNextPage, loading: query.isFetchingNextPage, load: () => void query.fetchNextPage() },
  };
}

/** The hub's pages name the next one in `next`, and are asked for it with `after`. */
export const PAGED = {
  pageParamName: "after",
  // Not undefined: the library asks for page 0 then.
  initialPageParam: null as string | null,
  getNextPageParam: (page: { next?: string | null }) => page.next ?? undefined,
};
