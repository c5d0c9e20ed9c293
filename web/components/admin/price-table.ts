// Converts a price table to text fields and back, in whole numbers: rates are hundredths, the fee is in millionths.
import type { Schemas } from "@/lib/api/client";
import { parseCredits, plainCredits } from "@/lib/format";

export type PriceTable = Schemas["PriceTableView"];

/** Typed texts by the name of the number: "base", "fee", "range", "least", "tier h100", "region in". Null: removed. */
export type Changes = Record<string, string | null>;

export interface Difference {
  name: string;
  before: string | null;
  after: string | null;
}

function fixed(value: number, digits: number): string {
  const text = String(value).padStart(digits + 1, "0");
  return `${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

/** 300 → "3.00" */
export function rate(hundredths: number): string {
  return fixed(hundredths, 2);
}

/** 200000 millionths → "20" */
export function feePercent(millionths: number): string {
  return fixed(millionths, 4).replace(/\.?0+$/, "");
}

/** Every number of the table by its name, as text. */
export function asText(table: PriceTable): Record<string, string> {
  const all: Record<string, string> = {
    base: plainCredits(table.base),
    fee: feePercent(table.fee_ppm),
    range: String(table.spot_range),
    least: plainCredits(table.payout_min),
  };
  for (const [name, value] of Object.entries(table.tiers)) all[`tier ${name}`] = rate(value);
  for (const [name, value] of Object.entries(table.regions)) all[`region ${name}`] = rate(value);
  return all;
}

function digits(text: string, after: number): number | null {
  const match = new RegExp(`^\\s*(\\d{1,6})(?:\\.(\\d{1,${after}}))?\\s*$`).exec(text);
  return match ? Number(`${match[1]}${(match[2] ?? "").padEnd(after, "0")}`) : null;
}

/** Microcredits, millionths, a factor or hundredths, as the name asks for; null when the text is no such number. */
export function numberOf(name: string, text: string): number | null {
  if (name === "base" || name === "least") return parseCredits(text);
  if (name === "fee") return digits(text, 4);
  if (name === "range") return /^\s*\d{1,4}\s*$/.test(text) ? Number(text) : null;
  return digits(text, 2);
}

/** An error message, or false. */
export function errorIn(table: PriceTable, name: string, text: string): string | false {
  const number = numberOf(name, text);
  if (number === null) return "This is not a valid number.";
  const most = table.fee_max_ppm ?? Number.POSITIVE_INFINITY;
  return name === "fee" && number > most && `At most ${feePercent(most)} %.`;
}

export function differences(before: Record<string, string>, after: Record<string, string>): Difference[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return names
    .map((name) => ({ name, before: before[name] ?? null, after: after[name] ?? null }))
    .filter((one) => one.before !== one.after);
}

export function withChanges(table: PriceTable, changes: Changes): Record<string, string> {
  const all = asText(table);
  for (const [name, text] of Object.entries(changes)) {
    const was = all[name];
    if (text === null) delete all[name];
    // 3.0 equals 3.00.
    else if (was === undefined || numberOf(name, text) !== numberOf(name, was)) all[name] = text.trim();
  }
  return all;
}

/** The complete new table; null while a text is not a valid number. */
export function request(table: PriceTable, changes: Changes): Schemas["PricesRequest"] | null {
  const numbers: Record<string, number> = {};
  for (const [name, text] of Object.entries(withChanges(table, changes))) {
    const number = numberOf(name, text);
    if (number === null || errorIn(table, name, text)) return null;
    numbers[name] = number;
  }
  const group = (kind: string) =>
    Object.fromEntries(
      Object.entries(numbers)
        .filter(([name]) => name.startsWith(`${kind} `))
        .map(([name, number]) => [name.slice(kind.length + 1), number]),
    );
  return {
    based_on: table.version,
    base: numbers.base ?? 0,
    fee_ppm: numbers.fee ?? 0,
    spot_range: numbers.range ?? 0,
    payout_min: numbers.least ?? 0,
    tiers: group("tier"),
    regions: group("region"),
  };
}

const LABELS: Record<string, string> = {
  base: "Base",
  fee: "Fee (%)",
  range: "Range of the spot price",
  least: "Minimum payout",
};

export function nameLabel(name: string): string {
  return LABELS[name] ?? name;
}
