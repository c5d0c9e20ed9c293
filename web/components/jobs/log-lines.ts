// Turns the output of a job into lines. It arrives in chunks of two streams, with carriage returns and escapes.

export type Stream = "stdout" | "stderr";

export interface LogLine {
  number: number; // counted from the first line of the job
  stream: Stream | "mark"; // a mark separates attempts
  text: string;
}

export interface LogChunk {
  seq: number;
  attempt_id: string;
  stream: string;
  text: string;
}

/** The page keeps this many lines; the download has everything that the hub has. */
const LINES_MAX = 100_000;
const DROP_AT_ONCE = 10_000;
/** A single line may be a whole file without a line break. */
export const LINE_CHARS_MAX = 10_000;
export const SEALED = "cpsealed:";

const CONTROL = new RegExp(
  [
    String.raw`\r|\n|\x08`,
    String.raw`\x1b\[[0-9;:?<=>]*[ -/]*[@-~]`, // colours, cursor, erasing
    String.raw`\x1b[\]P^_][^\x07\x1b]*(?:\x07|\x1b\\)`, // titles, links
    String.raw`\x1b[@-Z\\-~]`,
    String.raw`[\x00-\x07\x0b-\x1f\x7f]`,
  ].join("|"),
  "g",
);
/** An escape that may continue in the next chunk. Limited in length, because each short chunk searches it again. */
const UNFINISHED = new RegExp(
  [String.raw`\x1b(?:\[[0-9;:?<=>]{0,100}[ -/]{0,10}|[\]P^_]`, String.raw`[^\x07\x1b]{0,4000}\x1b?)?$`].join(""),
);

interface Pen {
  line: LogLine | null; // the stream's current line; null: the next character begins one
  column: number;
  tail: string;
}

/** Grows with `add`. Lines change in place; `version` changes with them. */
export class LogBuffer {
  lines: LogLine[] = [];
  dropped = 0;
  version = 0;
  sealed = false;
  #made = 0;
  #attempt = "";
  #pens: Record<Stream, Pen> = { stdout: newPen(), stderr: newPen() };

  add(chunks: LogChunk[]): void {
    for (const chunk of chunks) {
      if (chunk.attempt_id !== this.#attempt) this.#begin(chunk.attempt_id);
      if (chunk.text.startsWith(SEALED)) {
        this.sealed = true;
        continue;
      }
      this.#write(chunk.stream === "stderr" ? "stderr" : "stdout", chunk.text);
    }
    if (this.lines.length > LINES_MAX + DROP_AT_ONCE) this.#drop(this.lines.length - LINES_MAX);
    this.version += 1;
  }

  #begin(attempt: string): void {
    this.#pens = { stdout: newPen(), stderr: newPen() };
    const number = /-(\d+)$/.exec(attempt)?.[1];
    if (this.#attempt || (number && number !== "1")) {
      this.lines.push({ number: this.#made, stream: "mark", text: `Attempt ${number ?? attempt}` });
    }
    this.#attempt = attempt;
  }

  #drop(many: number): void {
    this.lines.splice(0, many);
    this.dropped += many;
  }

  #write(stream: Stream, chunk: string): void {
    const pen = this.#pens[stream];
    let text = pen.tail + chunk;
    const unfinished = UNFINISHED.exec(text);
    pen.tail = unfinished ? unfinished[0] : "";
    if (unfinished) text = text.slice(0, unfinished.index);
    let from = 0;
    for (const match of text.matchAll(CONTROL)) {
      if (match.index > from) this.#put(stream, pen, text.slice(from, match.index));
      from = match.index + match[0].length;
      this.#control(stream, pen, match[0]);
    }
    if (from < text.length) this.#put(stream, pen, text.slice(from));
  }

  #put(stream: Stream, pen: Pen, text: string): void {
    pen.line ??= this.#line(stream);
    const line = pen.line;
    if (pen.column >= LINE_CHARS_MAX) {
      if (!line.text.endsWith("…")) line.text += "…";
      return;
    }
    const fits = text.slice(0, LINE_CHARS_MAX - pen.column);
    const before = line.text.slice(0, pen.column).padEnd(pen.column);
    line.text = pen.column === line.text.length ? line.text + fits : before + fits + line.text.slice(pen.column + fits.length);
    pen.column += fits.length;
    if (fits.length < text.length) line.text += "…";
  }

  #control(stream: Stream, pen: Pen, code: string): void {
    if (code === "\n") {
      pen.line ??= this.#line(stream);
      pen.line = null;
      pen.column = 0;
    } else if (code === "\r") {
      pen.column = 0; // a progress bar writes over itself
    } else if (code === "\b") {
      pen.column = Math.max(0, pen.column - 1);
    } else if (code.endsWith("K") && pen.line) {
      pen.line.text = code === "\x1b[2K" ? "" : pen.line.text.slice(0, pen.column);
    } else if (code.length === 1 && code !== "\x1b") {
      this.#put(stream, pen, String.fromCharCode(code === "\x7f" ? 0x2421 : 0x2400 + code.charCodeAt(0)));
    }
  }

  #line(stream: Stream): LogLine {
    this.#made += 1;
    const line: LogLine = { number: this.#made, stream, text: "" };
    this.lines.push(line);
    return line;
  }
}

function newPen(): Pen {
  return { line: null, column: 0, tail: "" };
}

/** Indexes of the lines that contain the words, ignoring case. */
export function findLines(lines: LogLine[], words: string): number[] {
  if (!words) return [];
  const wanted = words.toLowerCase();
  const found: number[] = [];
  for (let index = 0; index < lines.length; index += 1) {
    if ((lines[index] as LogLine).text.toLowerCase().includes(wanted)) found.push(index);
  }
  return found;
}
