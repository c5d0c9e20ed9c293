import { execFileSync } from "node:child_process";
import { expect, it } from "vitest";
import { joinWords, splitWords } from "@/lib/shell-words";

it.each([
  ["ffmpeg -i in.mp4  out.webm", ["ffmpeg", "-i", "in.mp4", "out.webm"]],
  [`a 'b c' "d \\"e\\" \\$f"`, ["a", "b c", 'd "e" $f']],
  [`a'b'"c"\\ d`, ["abc d"]],
  [`'' ""`, ["", ""]],
  ["one \\\n  two\nthree", ["one", "two", "three"]],
  ['"a\\\nb"', ["ab"]],
  ["echo $HOME *.py | wc", ["echo", "$HOME", "*.py", "|", "wc"]], // there is no shell on a node
  ["  ", []],
])("splits %j", (line, words) => expect(splitWords(line)).toEqual(words));

it.each(["'a", 'a "b', `"a\\"`])("refuses the open quote in %j", (line) => expect(splitWords(line)).toBeNull());

const HARD = [
  "",
  " ",
  "it's",
  "print('a\\\\n')",
  "\\",
  '"$HOME"',
  "`x`",
  "a\nb",
  "!",
  "--x=y z",
  "ü",
  "''",
  "\\'\\'",
  "*",
  "~",
  "#",
];

it("writes lines that it and a real shell read back", () => {
  expect(splitWords(joinWords(HARD))).toEqual(HARD);
  const printed = execFileSync("sh", ["-c", `printf '%s\\0' ${joinWords(HARD)}`], { encoding: "utf8" });
  expect(printed.split("\0").slice(0, -1)).toEqual(HARD);
});
