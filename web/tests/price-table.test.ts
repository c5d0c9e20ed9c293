import { expect, it } from "vitest";
import { asText, differences, errorIn, numberOf, type PriceTable, request, withChanges } from "@/components/admin/price-table";

const TABLE = {
  version: 7,
  base: 10_500_000,
  fee_ppm: 205_000,
  fee_max_ppm: 300_000,
  spot_range: 4,
  payout_min: 1_500_000_000,
  tiers: { cpu: 100, h100: 2550 },
  regions: { in: 95 },
} as unknown as PriceTable;

it("writes every number as somebody would type it, and reads it back", () => {
  expect(asText(TABLE)).toEqual({
    base: "10.50",
    fee: "20.5",
    range: "4",
    least: "1500.00",
    "tier cpu": "1.00",
    "tier h100": "25.50",
    "region in": "0.95",
  });
  const { version, fee_max_ppm: _, ...numbers } = TABLE;
  expect(request(TABLE, {})).toEqual({ ...numbers, based_on: version });
});

it("sees changes of the number, not of how it is written", () => {
  const now = withChanges(TABLE, { "tier cpu": "1.0", "tier h100": null, "tier b200": " 40 ", base: "11" });
  expect(differences(asText(TABLE), now)).toEqual([
    { name: "base", before: "10.50", after: "11" },
    { name: "tier b200", before: null, after: "40" },
    { name: "tier h100", before: "25.50", after: null },
  ]);
});

it.each([
  ["base", "ten"],
  ["fee", "31"],
  ["fee", "-1"],
  ["range", "1.5"],
  ["tier cpu", "1.005"],
])("makes no request with %s = %j", (name, text) => {
  expect(errorIn(TABLE, name, text)).toBeTruthy();
  expect(request(TABLE, { [name]: text })).toBeNull();
});

it("keeps rates whole where floating point would not", () => {
  expect([numberOf("tier x", "0.29"), numberOf("fee", "8.7"), numberOf("base", "1.1")]).toEqual([29, 87_000, 1_100_000]);
});
