import { expect, it } from "vitest";
import { LINE_CHARS_MAX, LogBuffer } from "@/components/jobs/log-lines";

/** The lines that come of these chunks, whether they arrive together or one by one. */
function read(...texts: string[]): string[] {
  const [together, oneByOne] = [new LogBuffer(), new LogBuffer()];
  const chunks = texts.map((text, seq) => ({ seq, attempt_id: "job_1-1", stream: "stdout", text }));
  together.add(chunks);
  for (const chunk of chunks) oneByOne.add([chunk]);
  expect(oneByOne.lines).toEqual(together.lines);
  return together.lines.map((line) => line.text);
}

it.each([
  ["joins what chunks cut apart", ["one\ntw", "o three"], ["one", "two three"]],
  ["drops escapes", ["\x1b[31mred\x1b[0m \x1b]0;title\x07words"], ["red words"]],
  ["drops escapes that chunks cut apart", ["\x1b", "[3", "1", "mred\x1b]0;ti", "tle\x1b", "\\ words"], ["red words"]],
  ["lets a progress bar write over itself", ["10 %\r20 %\r\x1b[Kdone\n"], ["done"]],
  ["shows control characters", ["a\x00"], ["a␀"]],
])("%s", (_, texts, lines) => expect(read(...texts)).toEqual(lines));

it("cuts a line without an end", () => {
  const [line = ""] = read("x".repeat(LINE_CHARS_MAX * 2), "y");
  expect([line.length, line.at(-1)]).toEqual([LINE_CHARS_MAX + 1, "…"]);
});

it("does not wait long for the end of an escape", () => {
  const digits = "1".repeat(5000);
  for (const begin of ["\x1b[", "\x1b]"]) {
    expect(read(begin + digits)[0]).toContain(digits);
    expect(read(begin, ...digits)[0]).toContain("1".repeat(900));
  }
});

it("keeps streams and attempts apart", () => {
  const buffer = new LogBuffer();
  buffer.add([
    { seq: 1, attempt_id: "job_1-1", stream: "stdout", text: "out" },
    { seq: 2, attempt_id: "job_1-1", stream: "stderr", text: "err\n" },
    { seq: 3, attempt_id: "job_1-1", stream: "stdout", text: " more\n" },
    { seq: 4, attempt_id: "job_1-2", stream: "stdout", text: "again\n" },
  ]);
  expect(buffer.lines.map(({ stream, text }) => `${stream}: ${text}`)).toEqual([
    "stdout: out more",
    "stderr: err",
    "mark: Attempt 2",
    "stdout: again",
  ]);
});
