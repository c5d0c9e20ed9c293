import { expect, it } from "vitest";
import { LogBuffer, type LogChunk } from "@/components/jobs/log-lines";

const texts = (...pieces: string[]) => {
  const buffer = new LogBuffer();
  const chunks = pieces.map((text, seq): LogChunk => ({ seq, attempt_id: "job_1-1", stream: "stdout", text }));
  for (const chunk of chunks) buffer.add([chunk]);
  return buffer.lines.map((line) => line.text);
};

it("drops escapes, in whatever pieces they come", () => {
  expect(texts("\x1b[31mred\x1b[0m \x1b]0;title\x07words")).toEqual(["red words"]);
  expect(texts("\x1b", "[3", "1", "mred\x1b]0;ti", "tle\x1b", "\\ words")).toEqual(["red words"]);
});

it("waits for the end of no escape for long: each piece would be searched with all before it", () => {
  const digits = "1".repeat(5000);
  for (const begin of ["\x1b[", "\x1b]"]) {
    expect(texts(begin + digits)[0]).toContain(digits);
    expect(texts(begin, ...digits)[0]).toContain("1".repeat(900));
  }
});
