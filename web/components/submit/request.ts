// The form as the hub takes it. Says only what cannot be read at all; what makes sense is the hub's affair.
import type { Schemas } from "@/lib/api/client";
import { count, parseCredits } from "@/lib/format";
import { splitWords } from "../../lib/shell-words";
import { parseMegabytes, parseSeconds } from "./amounts";
import { type Errors, type FieldName, type Form, splitLines, splitList } from "./form";

const RUNS_MAX = 1000; // items that the hub takes at once
type JobSpec = Schemas["JobSpec"];
type Needs = Partial<Schemas["Needs"]>;
export type Spec = Pick<JobSpec, "kind" | "name"> & Partial<Omit<JobSpec, "kind" | "name" | "needs">> & { needs?: Needs };
export type SubmitBody = Schemas["SubmitRequest"];
type QuoteBody = Schemas["QuoteRequest"];

/** Read from a form: `body` without the group, which may have to be made first, and what could not be read. */
export interface Reading {
  spec: Spec;
  terms: Terms;
  runs: number;
  errors: Errors;
}

export type Terms = Partial<Pick<SubmitBody, "priority" | "retries" | "max_price" | "budget" | "verify" | "compare" | "after">>;

class Reader {
  errors: Errors = {};
  constructor(private readonly form: Form) {}

  private one<T>(field: FieldName, read: (text: string) => T | null, wrong: string): T | undefined {
    const text = String(this.form[field]).trim();
    if (!text) return undefined;
    const value = read(text);
    if (value !== null) return value;
    this.errors[field] = wrong;
    return undefined;
  }
  size = (field: FieldName) => this.one(field, parseMegabytes, "Write 16, 16GB or 512MB.");
  time = (field: FieldName) => this.one(field, parseSeconds, "Write 90, 10m or 2h.");
  credits = (field: FieldName) => this.one(field, parseCredits, "Write an amount such as 2.5.");
  number = (field: FieldName) => this.one(field, asNumber, "Write a number.");
  whole = (field: FieldName) => this.one(field, asWhole, "Write a whole number.");
  words = (field: FieldName) => this.one(field, splitWords, "A quote is not closed.") ?? [];
  text = (field: FieldName) => String(this.form[field]).trim() || undefined;
  list = (field: FieldName) => splitList(String(this.form[field]));
  lines = (field: FieldName) => splitLines(String(this.form[field]));
  pairs(field: FieldName): Record<string, string> {
    const found: Record<string, string> = {};
    for (const line of splitLines(String(this.form[field]))) {
      const cut = line.indexOf("=");
      if (cut < 1) this.errors[field] = `“${line}”: write NAME=VALUE, one per line.`;
      else found[line.slice(0, cut)] = line.slice(cut + 1);
    }
    return found;
  }
}

function asNumber(text: string): number | null {
  return /^\d*\.?\d+$/.test(text) ? Number(text) : null;
}

function asWhole(text: string): number | null {
  return /^-?\d{1,15}$/.test(text) ? Number(text) : null;
}

export function readForm(form: Form): Reading {
  const reader = new Reader(form);
  const needs = readNeeds(reader);
  const spec = withoutEmpty<Spec>({
    ...readWork(form, reader),
    needs,
    dependencies: reader.lines("dependencies"),
    env: reader.pairs("env"),
    inputs: form.inputs,
    timeout_s: reader.time("timeout"),
    labels: reader.list("labels"),
    net: reader.list("net"),
    seal_to: reader.text("sealTo"),
    checkpoints: form.checkpoints || undefined,
    moves: form.moves || undefined,
  });
  const terms = withoutEmpty<Terms>({
    priority: reader.whole("priority"),
    retries: reader.whole("retries"),
    max_price: reader.credits("maxPrice"),
    budget: reader.credits("budget"),
    verify: reader.text("verify"),
    compare: reader.text("compare"),
    after: reader.list("after"),
  });
  return { spec, terms, runs: readRuns(reader), errors: reader.errors };
}

/** Said here, because a group would be made for what the hub then refuses. */
function readRuns(reader: Reader): number {
  const runs = reader.whole("runs") ?? 1;
  if (runs >= 1 && runs <= RUNS_MAX) return runs;
  reader.errors.runs = `From 1 to ${count(RUNS_MAX)}.`;
  return 1;
}

function readWork(form: Form, reader: Reader): Pick<Spec, "kind" | "name" | "argv" | "source"> {
  if (form.kind === "script") {
    if (!form.source.trim()) reader.errors.source = "Write a script, or take a template.";
    return {
      kind: "script",
      name: reader.text("name") ?? reader.text("file") ?? "",
      argv: reader.words("args"),
      source: form.source,
    };
  }
  const argv = reader.words("command");
  if (argv.length === 0) reader.errors.command ??= "Write a program and its arguments.";
  const program = argv[0] ?? "";
  return { kind: "command", name: reader.text("name") ?? (program.split("/").pop() || program), argv };
}

function readNeeds(reader: Reader): Needs {
  return withoutEmpty<Needs>({
    cores: reader.number("cores"),
    ram_mb: reader.size("ram"),
    disk_mb: reader.size("disk"),
    gpus: reader.whole("gpus"),
    vram_mb: reader.size("vram"),
    tiers: reader.list("tiers"),
    regions: reader.list("regions"),
    tags: reader.list("tags"),
    prefer_tags: reader.list("preferTags"),
    exclude_tags: reader.list("excludeTags"),
    exclude_hosts: reader.list("excludeHosts"),
    host: reader.text("host"),
    properties: reader.pairs("properties"),
    mesh_version: reader.text("meshVersion"),
    isolation: reader.text("isolation"),
  });
}

/** What is not said is left to the hub. */
function withoutEmpty<T>(fields: Record<string, unknown>): T {
  const said = Object.entries(fields).filter(([, value]) => {
    if (value === undefined) return false;
    return typeof value !== "object" || value === null || Object.keys(value).length > 0;
  });
  return Object.fromEntries(said) as T;
}

export function quoteBody({ spec, terms, runs }: Reading): QuoteBody {
  return withoutEmpty<QuoteBody>({
    needs: spec.needs ?? {},
    kind: spec.kind,
    timeout_s: spec.timeout_s,
    items: Math.max(1, runs),
    max_price: terms.max_price,
    budget: terms.budget,
    net: spec.net,
    labels: spec.labels,
    name: spec.name || undefined,
    verify: terms.verify,
  });
}
