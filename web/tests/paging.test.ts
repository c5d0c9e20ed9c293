import { expect, it } from "vitest";
import { type Pages, rowIds, withPage } from "@/lib/paging";

const page = (ids: string, next: string | null = ids.at(-1) ?? null) => ({ jobs: [...ids].map((id) => ({ id })), next });
const list = (...pages: ReturnType<typeof page>[]): Pages => ({
  pages,
  pageParams: pages.map((_, index) => (index === 0 ? null : pages[index - 1]?.next)),
});
const scrolled = () => list(page("zyx"), page("wvu"), page("tsr", null));
const ids = (pages: Pages) => rowIds(pages).map((rows) => rows.join(""));

it.each([
  ["puts new rows on top and keeps what they push off the first page", 0, page("cba" + "z"), ["cbazyx", "wvu", "tsr"]],
  ["drops a row that is gone, although the page then reaches into the next one", 0, page("zxw"), ["zxw", "vu", "tsr"]],
  ["replaces a page in the middle", 1, page("wvu"), ["zyx", "wvu", "tsr"]],
  ["drops a row that is gone from a page in the middle", 1, page("wut"), ["zyx", "wut", "sr"]],
  ["keeps the rest when a page in the middle shares no row with the list", 1, page("qpo"), ["zyx", "qpo", "tsr"]],
  ["removes a page whose rows moved up", 1, page("tsr", null), ["zyx", "tsr"]],
  ["ends the list where the hub says so", 1, page("wv", null), ["zyx", "wv"]],
  ["begins again after a gap", 0, page("fed"), ["fed"]],
  ["begins again with an empty first page", 0, page("", "x"), [""]],
])("%s", (_, at, fresh, expected) => {
  const merged = withPage(scrolled(), at as number, fresh);
  expect(ids(merged)).toEqual(expected);
  expect(merged.pageParams).toEqual(scrolled().pageParams.slice(0, expected.length));
});

it("continues after the last row of the list", () => {
  const next = (pages: Pages) => (pages.pages.at(-1) as { next: string | null }).next;
  expect(next(withPage(list(page("zyx")), 0, page("cbz")))).toBe("x");
  expect(next(withPage(list(page("zyx"), page("wvu")), 0, page("zxw")))).toBe("u");
  expect(next(withPage(list(page("zyx"), page("w")), 0, page("xwvu")))).toBe("u");
});

it("begins again before the first page grows without end", () => {
  const rows = Array.from({ length: 2000 }, (_, index) => ({ id: `old-${index}` }));
  const merged = withPage(list({ jobs: rows, next: "n" }), 0, { jobs: [{ id: "new" }, { id: "old-0" }], next: "old-0" });
  expect(rowIds(merged)).toEqual([["new", "old-0"]]);
});

it("knows rows without an ID by their number, key or content", () => {
  const rows = [{ seq: 3 }, { key: "k", job_id: null }, { key: "k", job_id: "job_1" }, { at_ms: 1, job_id: "job_1" }];
  expect(rowIds({ pages: [{ rows }], pageParams: [null] })).toEqual([["3", "k", "job_1", '{"at_ms":1,"job_id":"job_1"}']]);
});
