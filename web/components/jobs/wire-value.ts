// Writes a job's value as Python does. On the wire it is JSON, with {"$tag": …} for what JSON cannot express.

export const WRITTEN_MAX = 100_000;
const DEPTH_MAX = 60;
const WIDTH = 100;
const ITEMS_SHOWN = 12;

/** A number as it was written: Python's integers can be longer than JavaScript's. */
class Digits {
  constructor(readonly text: string) {}
}

type Tree = null | boolean | string | Digits | Tree[] | { [name: string]: Tree };

interface Written {
  text: string;
  cut: boolean;
  pickled: boolean; // in part, which only Python can read
}

/** Null if the text is not in the wire format. */
export function writeValue(encoded: string): Written | null {
  let tree: Tree;
  try {
    tree = JSON.parse(encoded, keepDigits) as Tree;
  } catch {
    return null;
  }
  const text = write(tree, 0);
  return { text: text.slice(0, WRITTEN_MAX), cut: text.length > WRITTEN_MAX, pickled: encoded.includes('{"$pickle"') };
}

function keepDigits(_key: string, value: unknown, context?: { source?: string }): unknown {
  return typeof value === "number" ? new Digits(context?.source ?? String(value)) : value;
}

function write(tree: Tree, depth: number): string {
  if (tree === null) return "None";
  if (tree === true) return "True";
  if (tree === false) return "False";
  if (tree instanceof Digits) return tree.text;
  if (typeof tree === "string") return writeText(tree);
  if (depth > DEPTH_MAX) return "…";
  if (Array.isArray(tree)) return writeList("[", tree, "]", depth);
  const [only, ...others] = Object.entries(tree);
  if (only?.[0].startsWith("$") && others.length === 0) return writeTagged(only[0].slice(1), only[1], depth);
  return fields(
    "{",
    Object.entries(tree).map(([name, item]) => `${writeText(name)}: ${write(item, depth + 1)}`),
    "}",
    depth,
  );
}

function writeText(text: string): string {
  const inner = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"');
  return text.includes("'") && !text.includes('"') ? `"${inner}"` : `'${inner.replaceAll("'", "\\'")}'`;
}

function writeList(open: string, items: Tree[], close: string, depth: number): string {
  return fields(
    open,
    items.map((item) => write(item, depth + 1)),
    close,
    depth,
  );
}

/** On one line if it is short, otherwise on one line each. */
function fields(open: string, parts: string[], close: string, depth: number): string {
  const length = parts.reduce((sum, part) => sum + part.length + 2, 0);
  if (length + depth * 2 <= WIDTH && !parts.some((part) => part.includes("\n"))) return `${open}${parts.join(", ")}${close}`;
  const indent = "  ".repeat(depth + 1);
  return `${open}\n${parts.map((part) => `${indent}${part},\n`).join("")}${"  ".repeat(depth)}${close}`;
}

function writeTagged(tag: string, body: Tree, depth: number): string {
  try {
    return WRITERS[tag]?.(body, depth) ?? `<${tag}>`;
  } catch {
    return `<${tag}>`; // malformed
  }
}

type Body = Record<string, Tree>;
const text = (tree: Tree | undefined): string => (tree instanceof Digits ? tree.text : String(tree));
const items = (tree: Tree | undefined): Tree[] => {
  if (!Array.isArray(tree)) throw new TypeError("no list");
  return tree;
};
const number = (hex: Tree): string => {
  const digits = text(hex);
  return digits.startsWith("-") ? `-${BigInt(digits.slice(1))}` : BigInt(digits).toString();
};

const WRITERS: Record<string, (body: Tree, depth: number) => string> = {
  tuple: (body, depth) =>
    items(body).length === 1 ? `(${write(items(body)[0] as Tree, depth)},)` : writeList("(", items(body), ")", depth),
  set: (body, depth) => (items(body).length === 0 ? "set()" : writeList("{", items(body), "}", depth)),
  frozenset: (body, depth) => `frozenset(${writeList("{", items(body), "}", depth)})`,
  dict: (body, depth) => {
    const pairs = items(body).map(items);
    return fields(
      "{",
      pairs.map(([key, item]) => `${write(key as Tree, depth + 1)}: ${write(item as Tree, depth + 1)}`),
      "}",
      depth,
    );
  },
  int: (body) => number(body),
  float: (body) => text(body),
  str: (body) => writeText(new TextDecoder().decode(unbase64(text(body)))),
  bytes: (body) => bytesOf(body),
  bytearray: (body) => `bytearray(${bytesOf(body)})`,
  memoryview: (body) => `memoryview(${bytesOf(body)})`,
  complex: (body) => `(${text(items(body)[0])} + ${text(items(body)[1])}j)`,
  datetime: (body) => text((body as Body).iso),
  time: (body) => text((body as Body).iso),
  date: (body) => text(body),
  timedelta: (body) => {
    const [days, seconds, micro] = items(body).map(text);
    return `timedelta(days=${days}, seconds=${seconds}${micro === "0" ? "" : `, microseconds=${micro}`})`;
  },
  decimal: (body) => `Decimal('${text(body)}')`,
  uuid: (body) => `UUID('${text(body)}')`,
  fraction: (body) => `Fraction(${items(body).map(number).join(", ")})`,
  range: (body) => `range(${items(body).map(number).join(", ")})`,
  timezone: (body) => `timezone(${items(body).map(text).join(", ")})`,
  zone: (body) => `ZoneInfo('${text(body)}')`,
  path: (body, depth) => `${text(items(body)[0])}(${write(items(body)[1] as Tree, depth)})`,
  missing: (body) => text(body),
  timestamp: (body) => `Timestamp(${text(items(body)[0])}, unit='${text(items(body)[1])}')`,
  timespan: (body) => `Timedelta(${text(items(body)[0])}, unit='${text(items(body)[1])}')`,
  enum: (body) => `<${className(body)}.${text((body as Body).name)}>`,
  dataclass: (body, depth) => writeNamed(body, depth),
  namedtuple: (body, depth) => writeNamed(body, depth),
  array: (body) => arrayOf(body as Body),
  scalar: (body) => numbersIn(text((body as Body).dtype), text((body as Body).data), 1)?.[0] ?? `<${text((body as Body).dtype)}>`,
  series: (body, depth) => fields("Series(", [write((body as Body).data as Tree, depth + 1)], ")", depth),
  frame: (body, depth) => {
    const { columns, data } = body as Body;
    return fields(
      "DataFrame(",
      [`columns=${write(columns as Tree, depth + 1)}`, ...items(data).map((one) => write(one, depth + 1))],
      ")",
      depth,
    );
  },
  index: (body, depth) => `Index(${write(body, depth)})`,
  column: (body, depth) => write(body, depth),
  arrow: (body) => `<arrow ${text((body as Body).kind)}>`,
  pickle: () => "<pickled: open it with the SDK, allow_pickle=True>",
};

function className(body: Tree): string {
  return (
    text((body as Body).class)
      .split(":")
      .at(-1) ?? ""
  );
}

function writeNamed(body: Tree, depth: number): string {
  const parts = Object.entries((body as Body).fields as Body).map(([name, item]) => `${name}=${write(item, depth + 1)}`);
  return fields(`${className(body)}(`, parts, ")", depth);
}

function unbase64(data: string): Uint8Array {
  return Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
}

function bytesOf(body: Tree): string {
  const data = unbase64(text(body));
  const shown = Array.from(data.subarray(0, 64), (byte) =>
    byte >= 32 && byte < 127 && byte !== 92 && byte !== 39
      ? String.fromCharCode(byte)
      : `\\x${byte.toString(16).padStart(2, "0")}`,
  ).join("");
  return data.length > 64 ? `b'${shown}…' (${data.length} bytes)` : `b'${shown}'`;
}

function arrayOf({ dtype, shape, data }: Body): string {
  const size = items(shape).map(text);
  const shown = typeof dtype === "string" ? numbersIn(dtype, text(data), ITEMS_SHOWN) : null;
  const total = size.reduce((product, one) => product * Number(one), 1);
  const values = shown ? `[${shown.join(", ")}${total > shown.length ? ", …" : ""}], ` : "";
  return `array(${values}shape=(${size.join(", ")}${size.length === 1 ? "," : ""}), dtype=${write(dtype ?? null, 1)})`;
}

const READERS: Record<string, [number, (view: DataView, at: number, little: boolean) => number | bigint]> = {
  f8: [8, (view, at, little) => view.getFloat64(at, little)],
  f4: [4, (view, at, little) => view.getFloat32(at, little)],
  i8: [8, (view, at, little) => view.getBigInt64(at, little)],
  u8: [8, (view, at, little) => view.getBigUint64(at, little)],
  i4: [4, (view, at, little) => view.getInt32(at, little)],
  u4: [4, (view, at, little) => view.getUint32(at, little)],
  i2: [2, (view, at, little) => view.getInt16(at, little)],
  u2: [2, (view, at, little) => view.getUint16(at, little)],
  i1: [1, (view, at) => view.getInt8(at)],
  u1: [1, (view, at) => view.getUint8(at)],
};

/** The first numbers of an array; null for other types. */
function numbersIn(dtype: string, data: string, most: number): string[] | null {
  const reader = READERS[dtype.slice(1)];
  if (!reader) return null;
  const [size, read] = reader;
  const bytes = unbase64(data.slice(0, Math.ceil((most * size) / 3) * 4 + 4));
  const view = new DataView(bytes.buffer);
  const count = Math.min(most, Math.floor(bytes.length / size));
  return Array.from({ length: count }, (_, index) => String(read(view, index * size, dtype[0] !== ">")));
}
