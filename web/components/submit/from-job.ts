// An earlier job as a form, to be changed and submitted again.
import type { Schemas } from "@/lib/api/client";
import { plainCredits } from "@/lib/format";
import { joinWords } from "@/lib/shell-words";
import { apiName, FIELDS, NAMES, TYPES } from "./fields";
import { EMPTY, type Form } from "./form";

type JobDetail = Schemas["JobDetail"];

/** The form, and what it cannot hold. Null: the work is a pickled function, which nobody can edit here. */
export function fromJob(job: JobDetail): { form: Form; left: string[] } | null {
  const { spec } = job;
  if (spec.kind !== "script" && spec.kind !== "command") return null;
  const isScript = spec.kind === "script";
  const isFile = isScript && /^[\w.-]+\.\w+$/.test(spec.name);
  const form: Form = {
    ...EMPTY,
    ...optionsOf(job),
    kind: spec.kind,
    file: isFile ? spec.name : EMPTY.file,
    name: isFile ? "" : spec.name,
    source: spec.source ?? "",
    [isScript ? "args" : "command"]: joinWords(spec.argv),
    inputs: spec.inputs,
    checkpoints: spec.checkpoints,
    moves: spec.moves,
    sealTo: spec.seal_to ?? "",
  };
  if (["exact", "function"].includes(job.compare)) form.compare = "";
  return { form, left: leftOut(job) };
}

function optionsOf(job: JobDetail): Partial<Form> {
  const parts = { needs: job.spec.needs, spec: job.spec, terms: job } as Record<string, object>;
  const texts = NAMES.map((name) => {
    const { type, isFresh } = FIELDS[name];
    const [part = "", key = ""] = apiName(name) ?? [];
    const value = (parts[part] as Record<string, unknown> | undefined)?.[key];
    return [name, isFresh || !value ? "" : TYPES[type].write(value as never)];
  });
  return Object.fromEntries(texts) as Partial<Form>;
}

function leftOut(job: JobDetail): string[] {
  const left: string[] = [];
  if (job.compare === "function") left.push("the function that compared its results");
  // Nobody knows whether it was requested, or set by the hub.
  if (job.max_price > 0) left.push(`its maximum price of ${plainCredits(job.max_price)} credits per hour`);
  if (job.after.length > 0) left.push("the jobs it waited for");
  if (job.group_id) left.push("its group");
  if (Object.values(job.spec.env).some((value) => value.includes("\n"))) left.push("line breaks in its environment");
  return left;
}
