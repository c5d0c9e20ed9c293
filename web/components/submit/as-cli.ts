// The same job as a line for a shell.

import { joinWords, quoteWord } from "../../lib/shell-words";
import type { Form } from "./form";
import { type JobOption, optionsOf } from "./options";
import type { Reading } from "./request";

const WIDE = 88;

/** `here`: names of files that lie on the person's own disk; others are fetched from the hub first. */
export function asCli(form: Form, reading: Reading, here: ReadonlySet<string>): string {
  const parts = optionsOf(form, reading).flatMap(words);
  if (form.sealTo) parts.push("--seal");
  parts.push(...form.inputs.map((input) => optionWithValue("--input", pathArgument(input.name))));
  const argv = reading.spec.argv ?? [];
  const start = form.kind === "script" ? `pool submit ${quoteWord(pathArgument(form.file))}` : "pool submit";
  const rest = argv.length > 0 ? [`-- ${joinWords(argv)}`] : [];
  const fetched = form.inputs
    .filter((input) => !here.has(input.name))
    .map((input) => `pool artifacts get ${input.digest} ${quoteWord(pathArgument(input.name))}\n`);
  return fetched.join("") + foldLine([start, ...parts, ...rest]);
}

/** A name that begins with a dash would be read as an option. */
function pathArgument(name: string): string {
  return name.startsWith("-") ? `./${name}` : name;
}

function words({ cli, value }: JobOption): string[] {
  if (typeof value === "boolean") return [value ? cli : cli.replace("--", "--no-")];
  if (Array.isArray(value)) return value.map((one) => optionWithValue(cli, one));
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => optionWithValue(cli, `${name}=${one}`));
  return [optionWithValue(cli, String(value))];
}

function optionWithValue(cli: string, value: string): string {
  return value.startsWith("-") ? `${cli}=${quoteWord(value)}` : `${cli} ${quoteWord(value)}`;
}

function foldLine(parts: string[]): string {
  const line = parts.join(" ");
  return line.length <= WIDE ? line : parts.join(" \\\n  ");
}
