// The same job as a piece of Python.
import type { Form, InputFile } from "./form";
import { type JobOption, optionsOf } from "./options";
import type { Reading } from "./request";

export function asSdk(form: Form, reading: Reading, here: ReadonlySet<string>): string {
  const given = optionsOf(form, reading);
  if (form.sealTo) given.push({ cli: "", sdk: "seal", value: form.sealTo });
  const several = form.kind === "command" && reading.runs > 1;
  const options = given.filter((one) => !(several && ["slices", "group"].includes(one.sdk))).map(argument);
  if (form.inputs.length > 0) options.push(inputs(form.inputs, here));
  const fetched = form.inputs.some((input) => !here.has(input.name));
  const imports = [
    "import computepool",
    ...(fetched || several
      ? [`from computepool.protocol.jobs.jobs import ${[fetched && "InputFile", several && "Item"].filter(Boolean).join(", ")}`]
      : []),
  ];
  const work = several ? manyCommands(form, reading, options) : one(form, reading, options);
  return `${imports.join("\n")}\n\npool = computepool.connect()\n${work}\n`;
}

function one(form: Form, { spec, runs }: Reading, options: string[]): string {
  const argv = spec.argv ?? [];
  const first = form.kind === "script" ? [text(form.file), ...(argv.length > 0 ? [list(argv)] : [])] : [list(argv)];
  const start = call(`pool.${form.kind === "script" ? "run" : "command"}`, [...first, ...options]);
  return runs > 1
    ? `for outcome in ${start}:\n    print(outcome.output)`
    : `outcome = ${start}  # waits for its end\nprint(outcome.output)`;
}

/** The SDK has slices of scripts; of a command it takes the parts that those are made of. */
function manyCommands(form: Form, { spec, runs }: Reading, options: string[]): string {
  const name = form.group.trim();
  const group = name ? `pool.groups.find_or_create(${text(name)})` : `pool.groups.create(${text(spec.name)}, kind="slices")`;
  return [
    `work = ${call("pool.options", options)}`,
    `group = ${group}`,
    `spec = work.program(${list(spec.argv ?? [])})`,
    `reply = pool.jobs.submit(spec, items=[Item()] * ${runs}, group_id=group.id, **work.terms)`,
    "print(reply.job_ids)",
  ].join("\n");
}

function call(name: string, args: string[]): string {
  const line = `${name}(${args.join(", ")})`;
  return line.length <= 72 ? line : `${name}(\n${args.map((arg) => `    ${arg},\n`).join("")})`;
}

function argument({ sdk, value }: JobOption): string {
  if (typeof value === "boolean") return `${sdk}=${value ? "True" : "False"}`;
  if (typeof value === "number") return `${sdk}=${value}`;
  if (Array.isArray(value)) return `${sdk}=${list(value)}`;
  if (typeof value === "string") return `${sdk}=${text(value)}`;
  const pairs = Object.entries(value).map(([name, said]) => `${text(name)}: ${text(said)}`);
  return `${sdk}={${pairs.join(", ")}}`;
}

function inputs(files: InputFile[], here: ReadonlySet<string>): string {
  const found = files.map((file) =>
    here.has(file.name) ? text(file.name) : `InputFile(name=${text(file.name)}, digest=${text(file.digest)}, size=${file.size})`,
  );
  return `inputs=[${found.join(", ")}]`;
}

function list(words: string[]): string {
  return `[${words.map(text).join(", ")}]`;
}

/** A text of JSON is one of Python, too. */
function text(words: string): string {
  return JSON.stringify(words);
}
