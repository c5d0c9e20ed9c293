// The form as a line for a shell and as a piece of Python.
import { joinWords, quoteWord } from "@/lib/shell-words";
import { apiName, FIELDS, FLAGS, NAMES, TYPES } from "./fields";
import type { Form, InputFile } from "./form";
import type { Reading } from "./request";

interface JobOption {
  cli: string;
  sdk: string;
  value: string | number | boolean | string[] | Record<string, string>;
}

function optionsOf(form: Form, { spec, terms, runs }: Reading): JobOption[] {
  const parts = { needs: spec.needs ?? {}, spec, terms } as Record<string, object>;
  const fields = NAMES.flatMap((name): JobOption[] => {
    const { type, cli = `--${name.replaceAll("_", "-")}` } = FIELDS[name];
    if (name === "slices") return runs > 1 ? [{ cli, sdk: name, value: runs }] : [];
    const [part, key = ""] = apiName(name) ?? [];
    const value = part ? (parts[part] as Record<string, JobOption["value"]>)[key] : form[name].trim() || undefined;
    if (value === undefined) return [];
    const { write, isText } = { isText: false, ...TYPES[type] };
    return [{ cli, sdk: name, value: isText ? write(value as never) : value }];
  });
  const flags = FLAGS.flatMap(({ name, guess }): JobOption[] => {
    const isGuessed = form.kind === "script" && guess.test(form.source);
    return form[name] || isGuessed ? [{ cli: `--${name}`, sdk: name, value: form[name] }] : [];
  });
  return [...fields, ...flags];
}

const LINE_MAX = 88;

/** `here`: names of input files on this person's own disk; others are fetched from the hub first. */
export function asCli(form: Form, reading: Reading, here: ReadonlySet<string>): string {
  const options = optionsOf(form, reading).flatMap(cliWords);
  if (form.sealTo) options.push("--seal");
  options.push(...form.inputs.map((input) => withValue("--input", asPath(input.name))));
  const argv = reading.spec.argv ?? [];
  const start = form.kind === "script" ? `pool submit ${quoteWord(asPath(form.file))}` : "pool submit";
  const parts = [start, ...options, ...(argv.length > 0 ? [`-- ${joinWords(argv)}`] : [])];
  const fetched = form.inputs
    .filter((input) => !here.has(input.name))
    .map((input) => `pool artifacts get ${input.digest} ${quoteWord(asPath(input.name))}\n`);
  const line = parts.join(" ");
  return fetched.join("") + (line.length <= LINE_MAX ? line : parts.join(" \\\n  "));
}

/** A name that begins with a dash would be read as an option. */
function asPath(name: string): string {
  return name.startsWith("-") ? `./${name}` : name;
}

function cliWords({ cli, value }: JobOption): string[] {
  if (typeof value === "boolean") return [value ? cli : cli.replace("--", "--no-")];
  if (Array.isArray(value)) return value.map((one) => withValue(cli, one));
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => withValue(cli, `${name}=${one}`));
  return [withValue(cli, String(value))];
}

function withValue(cli: string, value: string): string {
  return `${cli}${value.startsWith("-") ? "=" : " "}${quoteWord(value)}`;
}

export function asSdk(form: Form, reading: Reading, here: ReadonlySet<string>): string {
  // The SDK has slices of scripts. Runs of a command are submitted as items.
  const isItems = form.kind === "command" && reading.runs > 1;
  const options = optionsOf(form, reading)
    .filter(({ sdk }) => !(isItems && ["slices", "group"].includes(sdk)))
    .map(({ sdk, value }) => `${sdk}=${python(value)}`);
  if (form.sealTo) options.push(`seal=${python(form.sealTo)}`);
  if (form.inputs.length > 0) options.push(`inputs=[${form.inputs.map((file) => inputFile(file, here)).join(", ")}]`);
  const needsFiles = form.inputs.some((input) => !here.has(input.name));
  const names = [needsFiles && "InputFile", isItems && "Item"].filter(Boolean);
  const imports = [
    "import computepool",
    ...(names.length > 0 ? [`from computepool.protocol.jobs.jobs import ${names.join(", ")}`] : []),
  ];
  const work = isItems ? itemsOf(form, reading, options) : runOf(form, reading, options);
  return `${imports.join("\n")}\n\npool = computepool.connect()\n${work}\n`;
}

function runOf(form: Form, { spec, runs }: Reading, options: string[]): string {
  const argv = spec.argv ?? [];
  const isScript = form.kind === "script";
  const args = isScript ? [python(form.file), ...(argv.length > 0 ? [python(argv)] : [])] : [python(argv)];
  const start = call(`pool.${isScript ? "run" : "command"}`, [...args, ...options]);
  return runs > 1
    ? `for outcome in ${start}:\n    print(outcome.output)`
    : `outcome = ${start}  # waits for the end of the job\nprint(outcome.output)`;
}

function itemsOf(form: Form, { spec, runs }: Reading, options: string[]): string {
  const name = form.group.trim();
  const group = name ? `pool.groups.find_or_create(${python(name)})` : `pool.groups.create(${python(spec.name)}, kind="slices")`;
  return [
    `work = ${call("pool.options", options)}`,
    `group = ${group}`,
    `spec = work.program(${python(spec.argv ?? [])})`,
    `reply = pool.jobs.submit(spec, items=[Item()] * ${runs}, group_id=group.id, **work.terms)`,
    "print(reply.job_ids)",
  ].join("\n");
}

function call(name: string, args: string[]): string {
  const line = `${name}(${args.join(", ")})`;
  return line.length <= 72 ? line : `${name}(\n${args.map((arg) => `    ${arg},\n`).join("")})`;
}

function inputFile({ name, digest, size }: InputFile, here: ReadonlySet<string>): string {
  return here.has(name) ? python(name) : `InputFile(name=${python(name)}, digest=${python(digest)}, size=${size})`;
}

/** JSON's texts, numbers, lists and objects of texts are Python's, too. */
function python(value: JobOption["value"]): string {
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, text]) => `${python(name)}: ${python(text)}`)
    .join(", ")}}`;
}
