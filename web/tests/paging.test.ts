import { expect, it } from "vitest";
import { type Pages, withFirst } from "@/lib/paging";

const page = (ids: string[], next: string | null) => ({ jobs: ids.map((id) => ({ id })), next });
const list = (...pages: unknown[]): Pages => ({ pages, pageParams: pages.map((_, index) => (index === 0 ? null : `p${index}`)) });
const ids = ({ pages }: Pages) => pages.map((one) => (one as { jobs: { id: string }[] }).jobs.map(({ id }) => id).join(""));

it("puts new rows on top and keeps what was scrolled to", () => {
  const merged = withFirst(list(page(["d", "c", "b"], "b"), page(["a"], null)), page(["f", "e", "d"], "d"));
  expect(ids(merged)).toEqual(["fedcb", "a"]);
  expect((merged.pages[0] as { next: string }).next).toBe("b"); // the second page still follows the old end
  expect(merged.pageParams).toEqual([null, "p1"]);
});

it("drops a row that is gone", () => {
  expect(ids(withFirst(list(page(["d", "c", "b"], "b"), page(["a"], null)), page(["d", "b"], "b")))).toEqual(["db", "a"]);
});

it.each([
  ["a gap", page(["z", "y"], "y")],
  ["the end of the list", page(["d", "c"], null)],
  ["an empty page", page([], "x")],
])("begins again after %s", (_, first) => {
  const merged = withFirst(list(page(["d", "c", "b"], "b"), page(["a"], null)), first);
  expect(merged).toEqual({ pages: [first], pageParams: [null] });
});

it("begins again before the first page grows without end", () => {
  const many = Array.from({ length: 2000 }, (_, index) => `old-${index}`);
  const merged = withFirst(list(page(many, "n"), page(["a"], null)), page(["new", "old-0"], "old-0"));
  expect(ids(merged)).toEqual(["newold-0"]);
});

it("knows rows without an id by their number or their content", () => {
  const events = (seqs: number[], next: number) => ({ events: seqs.map((seq) => ({ seq })), next });
  const merged = withFirst(list(events([3, 2], 2), events([1], 0)), events([4, 3], 3));
  expect(merged.pages[0]).toEqual({ events: [{ seq: 4 }, { seq: 3 }, { seq: 2 }], next: 2 });
});
