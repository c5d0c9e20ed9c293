import { describe, expect, it } from "vitest";
import { ago, bytes, credits, duration, megabytes, parseCredits, plainCredits, pluralize, shortId } from "@/lib/format";

describe("credits", () => {
  it.each([
    [0, "0.00"],
    [1_234_567, "1.23"],
    [1_999_999, "1.99"], // never rounded up
    [12, "0.000012"],
    [500_000, "0.50"],
    [-2_500_000, "−2.50"],
    [9_000_000_000_000_000, "9,000,000,000.00"],
  ])("shows %d microcredits as %s", (micro, text) => expect(credits(micro)).toBe(text));

  it("shows every digit on request", () => {
    expect(credits(1_234_567, { exact: true })).toBe("1.234567");
    expect(credits(2_500_000, { exact: true })).toBe("2.50");
  });

  it.each([
    ["2.5", 2_500_000],
    [" .000001 ", 1],
    ["999999999.999999", 999_999_999_999_999],
  ])("reads %j", (text, micro) => expect(parseCredits(text)).toBe(micro));

  it.each(["", ".", "-1", "1e3", "1,5", "0.0000001", "1234567890"])("refuses %j", (text) =>
    expect(parseCredits(text)).toBeNull(),
  );

  it("reads back exactly what it shows", () => {
    for (const micro of [1, 999_999, 1_000_001, 123_456_789_012_345]) {
      expect(parseCredits(plainCredits(micro))).toBe(micro);
    }
  });
});

it("names sizes and times by their largest units", () => {
  expect([999, 1000, 123_456, 5e12].map(bytes)).toEqual(["999 B", "1.0 kB", "123 kB", "5.0 TB"]);
  expect([-5, 120, 1500, 45_000, 12_000_000, 90_000_000].map(duration)).toEqual([
    "0 s",
    "120 ms",
    "1.5 s",
    "45 s",
    "3 h 20 min",
    "1 d 1 h",
  ]);
  expect(ago(0, 60_000)).toContain("1 min");
});

it.each([
  [512, "512 MB"],
  [999, "999 MB"],
  [4000, "4 GB"],
  [21_690, "21.6 GB"], // never rounded up, as on the command line
  [999_999, "999.9 GB"],
  [4_252_800, "4.2 TB"],
])("shows %d MB as %s", (mb, text) => expect(megabytes(mb)).toBe(text));

it("counts things", () => {
  expect([pluralize(1, "node"), pluralize(1200, "node"), pluralize(0, "entry", "entries")]).toEqual([
    "1 node",
    "1,200 nodes",
    "0 entries",
  ]);
});

it("shortens an id to what tells it from others", () => {
  expect(shortId("job_0123456789abcdef")).toBe("job_…abcdef");
  expect(shortId("job_short")).toBe("job_short");
});
