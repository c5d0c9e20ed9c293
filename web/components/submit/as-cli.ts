// The same job as a line for a shell.
import type { Form } from "./form";
import { type JobOption, optionsOf } from "./options";
import type { Reading } from "./request";
import { joinWords, quoteWord } from "./shell-words";

const WIDE = 88;

/** `here`: names of files that lie on the person's own disk; others are fetched from the hub first. */
export function asCli(form: Form, reading: Reading, here: ReadonlySet<string>): string {
  const parts = optionsOf(form, reading).flatMap(words);
  if (form.sealTo) parts.push("--seal");
  parts.push(...form.inputs.map((input) => valued("--input", plain(input.name))));
  const argv = reading.spec.argv ?? [];
  const start = form.kind === "script" ? `pool submit ${quoteWord(plain(form.file))}` : "pool submit";
  const rest = argv.length > 0 ? [`-- ${joinWords(argv)}`] : [];
  const fetched = form.inputs
    .filter((input) => !here.has(input.name))
    .map((input) => `pool artifacts get ${input.digest} ${quoteWord(plain(input.name))}\n`);
  return fetched.join("") + folded([start, ...parts, ...rest]);
}

/** A name that begins with a dash would be read as an option. */
function plain(name: string): string {
  return name.startsWith("-") ? `./${name}` : name;
}

function words({ cli, value }: JobOption): string[] {
  if (typeof value === "boolean") return [value ? cli : cli.replace("--", "--no-")];
  if (Array.isArray(value)) return value.map((one) => valued(cli, one));
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => valued(cli, `${name}=${one}`));
  return [valued(cli, String(value))];
}

function valued(cli: string, value: string): string {
  return value.startsWith("-") ? `${cli}=${quoteWord(value)}` : `${cli} ${quoteWord(value)}`;
}

function folded(parts: string[]): string {
  const line = parts.join(" ");
  return line.length <= WIDE ? line : parts.join(" \\\n  ");
}
