// Many files as one: a ZIP archive made here, without compression. Its parts stay blobs, so that it needs little memory.

export interface ZipEntry {
  name: string;
  data: Blob;
  crc: number;
}

/** What fits without the 64-bit fields of the format, with room for the names. */
export const ZIP_MAX = 0xf0000000;

const TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value >>> 0;
});

export async function zipEntry(name: string, data: Blob): Promise<ZipEntry> {
  let crc = 0xffffffff;
  const reader = data.stream().getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    for (const byte of part.value) crc = (crc >>> 8) ^ (TABLE[(crc ^ byte) & 0xff] as number);
  }
  return { name: safeName(name), data, crc: (crc ^ 0xffffffff) >>> 0 };
}

export function zip(entries: ZipEntry[]): Blob {
  const parts: BlobPart[] = [];
  const directory: BlobPart[] = [];
  let offset = 0;
  let directorySize = 0;
  for (const entry of distinct(entries)) {
    const name = new TextEncoder().encode(entry.name);
    const fields = [0x0800, 0, 0, 0x0021]; // names in UTF-8, stored, midnight of 1980-01-01
    const sizes = [entry.crc, entry.data.size, entry.data.size];
    parts.push(record([[4, 0x04034b50], [2, 20], ...twos(fields), ...fours(sizes), [2, name.length], [2, 0]]), name, entry.data);
    directory.push(
      record([
        [4, 0x02014b50],
        [2, 20],
        [2, 20],
        ...twos(fields),
        ...fours(sizes),
        ...twos([name.length, 0, 0, 0, 0]),
        [4, 0],
        [4, offset],
      ]),
      name,
    );
    offset += 30 + name.length + entry.data.size;
    directorySize += 46 + name.length;
  }
  const end = record([[4, 0x06054b50], ...twos([0, 0, entries.length, entries.length]), [4, directorySize], [4, offset], [2, 0]]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

type Field = [bytes: 2 | 4, value: number];

function twos(values: number[]): Field[] {
  return values.map((value) => [2, value]);
}

function fours(values: number[]): Field[] {
  return values.map((value) => [4, value]);
}

function record(fields: Field[]): ArrayBuffer {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [size]) => sum + size, 0)));
  let at = 0;
  for (const [size, value] of fields) {
    if (size === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += size;
  }
  return view.buffer;
}

/** A path that stays inside the folder it is unpacked into, on every system. */
function safeName(name: string): string {
  const steps = name.split(/[/\\]/).filter((step) => step && step !== "." && step !== "..");
  return steps.map((step) => step.replace(/[\p{Cc}<>:"|?*]/gu, "_")).join("/") || "file";
}

function distinct(entries: ZipEntry[]): ZipEntry[] {
  const seen = new Map<string, number>();
  return entries.map((entry) => {
    const before = seen.get(entry.name) ?? 0;
    seen.set(entry.name, before + 1);
    return before === 0 ? entry : { ...entry, name: entry.name.replace(/(\.[^./]*)?$/, ` (${before + 1})$1`) };
  });
}
