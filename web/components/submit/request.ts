// The form as the hub's API takes it. Only what cannot be read is an error here; the hub judges the rest.
import type { Schemas } from "@/lib/api/client";
import { count } from "@/lib/format";
import { splitWords } from "@/lib/shell-words";
import { apiName, FIELDS, FLAGS, NAMES, TYPES } from "./fields";
import type { Errors, Form } from "./form";

const RUNS_MAX = 1000; // items that the hub accepts at once
type JobSpec = Schemas["JobSpec"];
export type Spec = Pick<JobSpec, "kind" | "name"> &
  Partial<Omit<JobSpec, "kind" | "name" | "needs">> & { needs?: Partial<Schemas["Needs"]> };
export type SubmitBody = Schemas["SubmitRequest"];
type Terms = Partial<Pick<SubmitBody, "priority" | "retries" | "max_price" | "budget" | "verify" | "compare" | "after">>;

/** What was read; the group is separate, as it may have to be created first. */
export interface Reading {
  spec: Spec;
  terms: Terms;
  runs: number;
  errors: Errors;
}

export function readForm(form: Form): Reading {
  const errors: Errors = {};
  const read: Record<string, Record<string, unknown>> = { needs: {}, spec: {}, terms: {} };
  for (const name of NAMES) {
    const text = form[name].trim();
    if (!text) continue;
    const { read: parse, wrong } = TYPES[FIELDS[name].type];
    const [part, key] = apiName(name) ?? [];
    const value = parse(text);
    if (value === null) errors[name] = wrong;
    else if (part && key) Object.assign(read[part] ?? {}, { [key]: value });
  }
  for (const { name } of FLAGS) if (form[name]) Object.assign(read.spec ?? {}, { [name]: true });
  const runs = form.slices.trim() ? Number(form.slices) : 1;
  const isPossible = Number.isInteger(runs) && runs >= 1 && runs <= RUNS_MAX;
  if (!isPossible) errors.slices = `From 1 to ${count(RUNS_MAX)}.`;
  const work = readWork(form, errors);
  const needs = withoutEmpty(read.needs ?? {});
  const spec = withoutEmpty({
    ...work,
    needs,
    ...read.spec,
    inputs: form.inputs,
    seal_to: form.sealTo.trim(),
  }) as unknown as Spec;
  return { spec, terms: withoutEmpty(read.terms ?? {}), runs: isPossible ? runs : 1, errors };
}

function readWork(form: Form, errors: Errors): Pick<Spec, "kind" | "name" | "argv" | "source"> {
  const isScript = form.kind === "script";
  const argv = splitWords(isScript ? form.args : form.command);
  if (!argv) errors[isScript ? "args" : "command"] = "A quotation mark is not closed.";
  const name = form.name.trim();
  if (isScript) {
    if (!form.source.trim()) errors.source = "Write a script, or select a template.";
    return { kind: "script", name: name || form.file.trim(), argv: argv ?? [], source: form.source };
  }
  const [program = ""] = argv ?? [];
  if (!program) errors.command ??= "Write a program and its arguments.";
  return { kind: "command", name: name || program.split("/").pop() || program, argv: argv ?? [] };
}

/** Without empty texts, lists and objects: the hub decides those. */
function withoutEmpty<T extends object>(fields: T): Partial<T> {
  const isFilled = (value: unknown) =>
    value !== undefined && value !== "" && (typeof value !== "object" || value === null || Object.keys(value).length > 0);
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => isFilled(value))) as Partial<T>;
}

export function quoteBody({ spec, terms, runs }: Reading): Schemas["QuoteRequest"] {
  const { needs = {}, kind, timeout_s, net, labels, name } = spec;
  const { max_price, budget, verify } = terms;
  const body = withoutEmpty({ kind, timeout_s, items: runs, max_price, budget, net, labels, name, verify });
  return { needs, ...body } as Schemas["QuoteRequest"];
}
