// Formats the API's whole numbers. Amounts are microcredits, times milliseconds since the epoch, sizes bytes or MB.

const MICRO = 1_000_000n;

/** 1 234 567 microcredits → "1.23"; small amounts keep two significant digits: "0.000012". Never rounded up. */
export function credits(micro: number, { exact = false }: { exact?: boolean } = {}): string {
  const value = BigInt(Math.trunc(micro));
  const absolute = value < 0n ? -value : value;
  const whole = absolute / MICRO;
  let fraction = (absolute % MICRO).toString().padStart(6, "0");
  if (!exact) {
    const firstDigit = fraction.search(/[1-9]/);
    fraction = fraction.slice(0, whole > 0n || firstDigit < 1 ? 2 : firstDigit + 2);
    if (firstDigit === -1) fraction = "00";
  } else {
    fraction = fraction.replace(/0{1,4}$/, "");
  }
  const sign = value < 0n ? "−" : "";
  return `${sign}${whole.toLocaleString("en-US")}.${fraction}`;
}

/** As somebody would type it: 2 500 000 → "2.50". */
export function plainCredits(micro: number): string {
  return credits(micro, { exact: true }).replaceAll(",", "");
}

/** A typed amount as microcredits; null if it is not one. */
export function parseCredits(text: string): number | null {
  const match = /^\s*(\d{1,9})?(?:\.(\d{1,6}))?\s*$/.exec(text);
  if (!match || (match[1] === undefined && match[2] === undefined)) return null;
  return Number(BigInt(match[1] ?? "0") * MICRO + BigInt((match[2] ?? "").padEnd(6, "0")));
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** 1 → "1 node", 1200 → "1,200 nodes". */
export function pluralize(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** 0.42 → "42 %"; parts per million with `ppm`. */
export function percent(share: number, digits = 0): string {
  return `${(share * 100).toFixed(digits)} %`;
}

export function ppm(millionths: number, digits = 0): string {
  return percent(millionths / 1_000_000, digits);
}

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(size: number): string {
  let value = size;
  let unit = 0;
  while (value >= 1000 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${BYTE_UNITS[unit]}`;
}

/** "512 MB", "21.6 GB", rounded down as on the command line: too little never looks like enough. */
export function megabytes(mb: number): string {
  if (mb >= 1_000_000) return `${Math.floor(mb / 100_000) / 10} TB`;
  return mb < 1000 ? `${Math.round(mb)} MB` : `${Math.floor(mb / 100) / 10} GB`;
}

/** Thousandths of a core or a GPU: 1500 → "1.5". */
export function units(thousandths: number): string {
  return (thousandths / 1000).toLocaleString("en-US", { maximumFractionDigits: 2 });
}

const STEPS: [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

/** The two largest parts: "3 h 20 min", "45 s", "120 ms". */
export function duration(ms: number): string {
  if (ms < 0) return "0 s";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const first = STEPS.findIndex(([, step]) => ms >= step);
  const [unit, step] = STEPS[first] ?? ["s", 1000];
  const text = `${Math.floor(ms / step)} ${unit}`;
  const next = STEPS[first + 1];
  const rest = next ? Math.floor((ms % step) / next[1]) : 0;
  return next && rest > 0 ? `${text} ${rest} ${next[0]}` : text;
}

export function ago(thenMs: number, nowMs: number): string {
  const passed = nowMs - thenMs;
  if (Math.abs(passed) < 5000) return "now";
  const [largest = ""] = duration(Math.abs(passed)).match(/^[\d.]+ \w+/) ?? [];
  const text = largest.replace(/\.\d+/, "");
  return passed > 0 ? `${text} ago` : `in ${text}`;
}

const DAY_AND_TIME = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });

export function moment(ms: number): string {
  return DAY_AND_TIME.format(ms);
}

export function day(ms: number): string {
  return DAY.format(ms);
}

/** The end of an id distinguishes it from others. */
export function shortId(id: string): string {
  return id.length > 14 ? `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-6)}` : id;
}
