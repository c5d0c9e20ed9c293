import { expect, it } from "vitest";
import { EMPTY } from "@/components/submit/form";
import { fromJob } from "@/components/submit/from-job";
import { quoteBody, readForm } from "@/components/submit/request";
import { asCli } from "@/components/submit/snippet";
import { type Column, sortRows } from "@/components/ui/data-table";

it("sends only what was filled in", () => {
  const form = { ...EMPTY, source: "print(1)", ram: "4GB", timeout: "10m", max_price: "2.5", env: "A=b=c", tier: "h100, cpu" };
  const { spec, terms, errors } = readForm(form);
  expect(spec).toEqual({
    kind: "script",
    name: "job.py",
    source: "print(1)",
    needs: { ram_mb: 4000, tiers: ["h100", "cpu"] },
    env: { A: "b=c" },
    timeout_s: 600,
  });
  expect([terms, errors]).toEqual([{ max_price: 2_500_000 }, {}]);
  expect(quoteBody(readForm(form))).toMatchObject({ items: 1, max_price: 2_500_000, timeout_s: 600 });
});

it("marks each field that cannot be read", () => {
  const wrong = {
    kind: "command",
    command: "echo 'x",
    ram: "lots",
    timeout: "soon",
    max_price: "-1",
    slices: "1001",
    env: "A",
  } as const;
  const { errors } = readForm({ ...EMPTY, ...wrong });
  expect(Object.keys(errors).sort()).toEqual(["command", "env", "max_price", "ram", "slices", "timeout"]);
  expect(errors.command).toBe("A quotation mark is not closed.");
});

it("shows a command that a shell reads as the form was meant", () => {
  const input = { name: "-in put.csv", digest: "d1", size: 1 };
  const form = { ...EMPTY, kind: "command", command: `python -c "print('hi')"`, labels: "-x", inputs: [input] } as const;
  const cli = asCli({ ...form, inputs: [...form.inputs] }, readForm({ ...form, inputs: [...form.inputs] }), new Set());
  expect(cli).toBe(
    "pool artifacts get d1 './-in put.csv'\n" +
      "pool submit --label=-x --input './-in put.csv' -- python -c 'print('\\''hi'\\'')'",
  );
});

it("fills in the form from an earlier job as it was submitted", () => {
  const needs = { cores: 0.5, ram_mb: 512, disk_mb: 1000, gpus: 0, vram_mb: 0, tiers: ["cpu"], regions: [], tags: ["a", "b"] };
  const more = { prefer_tags: [], exclude_tags: [], exclude_hosts: [], properties: { rack: "7" }, host: null };
  const spec = { kind: "command", name: "echo", argv: ["echo", "two words"], needs: { ...needs, ...more }, net: [], labels: [] };
  const rest = { timeout_s: 5400, dependencies: ["rich"], env: { A: "1" }, inputs: [], checkpoints: false, moves: true };
  const terms = {
    retries: 2,
    priority: 0,
    verify: "adaptive",
    compare: "exact",
    max_price: 2_500_000,
    after: [],
    group_id: null,
  };
  const job = { ...terms, spec: { ...spec, ...rest } } as unknown as Parameters<typeof fromJob>[0];
  const { form, left } = fromJob(job) ?? {};
  expect(form).toEqual({
    ...EMPTY,
    kind: "command",
    command: "echo 'two words'",
    name: "echo",
    cores: "0.5",
    ram: "512MB",
    disk: "1GB",
    tier: "cpu",
    tags: "a, b",
    properties: "rack=7",
    timeout: "90m",
    dependencies: "rich",
    env: "A=1",
    moves: true,
    retries: "2",
    verify: "adaptive",
  });
  expect(left).toEqual(["its maximum price of 2.50 credits per hour"]);
});

interface Row {
  name: string;
  price: number;
}
const COLUMNS: Column<Row>[] = [
  { key: "name", title: "Name", width: "1fr", cell: (row) => row.name, sort: (row) => row.name },
  { key: "price", title: "Price", width: "1fr", cell: (row) => row.price, sort: (row) => row.price },
  { key: "fixed", title: "Fixed", width: "1fr", cell: () => null },
];
const ROWS: Row[] = [
  { name: "node-10", price: 2 },
  { name: "node-9", price: 10 },
  { name: "Node-1", price: 2 },
];
const names = (by: string) => sortRows(ROWS, COLUMNS, by).map((row) => row.name);

it("sorts a table by any column that can be sorted, stably, and leaves the rows alone", () => {
  expect(names("name")).toEqual(["Node-1", "node-9", "node-10"]);
  expect(names("-name")).toEqual(["node-10", "node-9", "Node-1"]);
  expect(names("price")).toEqual(["node-10", "Node-1", "node-9"]);
  expect(names("-price")).toEqual(["node-9", "node-10", "Node-1"]);
  for (const by of ["", "fixed", "unknown"]) expect(sortRows(ROWS, COLUMNS, by)).toBe(ROWS);
  expect(ROWS.map((row) => row.name)).toEqual(["node-10", "node-9", "Node-1"]);
});
