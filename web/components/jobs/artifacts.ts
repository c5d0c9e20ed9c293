// Bytes of artifacts, and their type: recognised by the first bytes, never by the name.
import { answerOf, client } from "@/lib/api/client";

export const HEAD_BYTES = 64 * 1024;
const PICTURE_MAX = 16 * 1000 * 1000;

export async function readArtifact(
  digest: string,
  { first, signal }: { first?: number; signal?: AbortSignal } = {},
): Promise<Blob> {
  const answer = client.GET("/artifacts/{digest}", {
    params: { path: { digest } },
    parseAs: "blob",
    ...(first !== undefined && { headers: { Range: `bytes=0-${first - 1}` } }),
    ...(signal && { signal }),
  });
  return (await answerOf(answer)) as Blob;
}

export type Preview =
  | { kind: "picture"; blob: Blob }
  | { kind: "text"; text: string; cut: boolean }
  | { kind: "sealed" }
  | { kind: "empty" }
  | { kind: "too-large" }
  | { kind: "binary" };

export async function previewOf(file: { digest: string; size: number }, signal?: AbortSignal): Promise<Preview> {
  if (file.size === 0) return { kind: "empty" };
  const first = Math.min(file.size, HEAD_BYTES);
  const head = await readArtifact(file.digest, { first, ...(signal && { signal }) });
  const bytes = new Uint8Array(await head.arrayBuffer());
  if (startsWith(bytes, "CPSEAL")) return { kind: "sealed" };
  const picture = pictureType(bytes);
  if (picture) {
    if (file.size > PICTURE_MAX) return { kind: "too-large" };
    const whole = file.size > first ? await readArtifact(file.digest, signal ? { signal } : {}) : bytes;
    // One of a fixed list of types, whatever the answer's headers say.
    return { kind: "picture", blob: new Blob([whole], { type: picture }) };
  }
  const text = asText(bytes, file.size > first);
  return text === null ? { kind: "binary" } : { kind: "text", text, cut: file.size > first };
}

function startsWith(bytes: Uint8Array, text: string, at = 0): boolean {
  return [...text].every((char, index) => bytes[at + index] === char.charCodeAt(0));
}

/** Only types that cannot contain scripts: no SVG. */
export function pictureType(bytes: Uint8Array): string | null {
  if (startsWith(bytes, "\x89PNG\r\n\x1a\n")) return "image/png";
  if (startsWith(bytes, "\xff\xd8\xff")) return "image/jpeg";
  if (startsWith(bytes, "GIF87a") || startsWith(bytes, "GIF89a")) return "image/gif";
  if (startsWith(bytes, "RIFF") && startsWith(bytes, "WEBP", 8)) return "image/webp";
  if (startsWith(bytes, "ftypavif", 4) || startsWith(bytes, "ftypavis", 4)) return "image/avif";
  return null;
}

function asText(bytes: Uint8Array, cut: boolean): string | null {
  if (bytes.includes(0)) return null;
  // The last character may be cut in two.
  for (const less of cut ? [0, 1, 2, 3] : [0]) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, bytes.length - less));
    } catch {}
  }
  return null;
}

/** The first rows of a table that is separated by commas, tabs or semicolons. */
export function csvRows(text: string, { rows: most, columns }: { rows: number; columns: number }): string[][] | null {
  const first = text.slice(0, text.search(/\r?\n|$/));
  const separator = [",", "\t", ";"].find((mark) => first.includes(mark));
  if (!separator) return null;
  const rows: string[][] = [[]];
  let cell = "";
  let quoted = false;
  const endCell = () => {
    const row = rows.at(-1) as string[];
    if (row.length < columns) row.push(cell);
    cell = "";
  };
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at] as string;
    if (quoted) {
      if (char !== '"') cell += char;
      else if (text[at + 1] === '"') {
        cell += char;
        at += 1;
      } else quoted = false;
    } else if (char === '"' && cell === "") quoted = true;
    else if (char === separator) endCell();
    else if (char === "\n") {
      endCell();
      if (rows.length === most) return rows;
      rows.push([]);
    } else if (char !== "\r") cell += char;
  }
  endCell();
  return rows.filter((row) => row.length > 1 || row[0] !== "");
}
