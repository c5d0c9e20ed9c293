import { expect, it } from "vitest";
import { parseMegabytes, parseSeconds, sizeText, timeText } from "@/components/submit/amounts";
import { parseCredits, plainCredits } from "@/lib/format";

it.each([
  ["16", 16_000],
  ["16GB", 16_000],
  [" 1.5 g ", 1500],
  ["512mb", 512],
  ["0.3kB", 1], // part of a megabyte is a megabyte
  ["1TB", 1_000_000],
  ["0", 0],
])("reads the size %j", (text, mb) => expect(parseMegabytes(text)).toBe(mb));

it.each([
  ["90", 90],
  ["10m", 600],
  ["1.5h", 5400],
  ["2d", 172_800],
])("reads the time %j", (text, seconds) => expect(parseSeconds(text)).toBe(seconds));

it.each(["", "GB", "-1", "1,5", "4 parsecs", "1e9", "constructor"])("refuses %j", (text) => {
  expect([parseMegabytes(text), parseSeconds(text)]).toEqual([null, null]);
});

it("writes what it reads back", () => {
  for (const mb of [1, 512, 1000, 16_000]) expect(parseMegabytes(sizeText(mb))).toBe(mb);
  for (const seconds of [1, 90, 600, 7200]) expect(parseSeconds(timeText(seconds))).toBe(seconds);
  for (const micro of [0, 1, 2_500_000, 123_456_789]) expect(parseCredits(plainCredits(micro))).toBe(micro);
});
