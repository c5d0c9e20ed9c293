// An earlier job as a form, to change and run again.
import type { Schemas } from "@/lib/api/client";
import { joinWords } from "../../lib/shell-words";
import { creditText, sizeText, timeText } from "./amounts";
import { EMPTY, type Form } from "./form";

type JobDetail = Schemas["JobDetail"];

interface Resubmission {
  form: Form;
  left: string[]; // what a form cannot hold
}

/** Null: its work is a function's bytes, which nobody can edit here. */
export function fromJob(job: JobDetail): Resubmission | null {
  const { spec } = job;
  if (spec.kind !== "script" && spec.kind !== "command") return null;
  const script = spec.kind === "script";
  const form: Form = {
    ...EMPTY,
    ...needsOf(spec.needs),
    kind: script ? "script" : "command",
    file: script && isFileName(spec.name) ? spec.name : "job.py",
    name: script && isFileName(spec.name) ? "" : spec.name,
    source: spec.source ?? "",
    args: script ? joinWords(spec.argv) : "",
    command: script ? "" : joinWords(spec.argv),
    inputs: spec.inputs,
    net: spec.net.join(", "),
    labels: spec.labels.join(", "),
    timeout: timeText(spec.timeout_s),
    retries: job.retries ? String(job.retries) : "",
    priority: job.priority ? String(job.priority) : "",
    verify: job.verify,
    compare: job.compare === "exact" || job.compare === "function" ? "" : job.compare,
    after: "",
    dependencies: spec.dependencies.join("\n"),
    env: pairs(spec.env),
    checkpoints: spec.checkpoints,
    moves: spec.moves,
    sealTo: spec.seal_to ?? "",
  };
  return { form, left: leftOut(job) };
}

function needsOf(needs: Schemas["Needs"]): Partial<Form> {
  return {
    cores: String(needs.cores),
    ram: needs.ram_mb == null ? "" : sizeText(needs.ram_mb),
    disk: sizeText(needs.disk_mb),
    gpus: needs.gpus ? String(needs.gpus) : "",
    vram: needs.vram_mb ? sizeText(needs.vram_mb) : "",
    tiers: needs.tiers.join(", "),
    regions: needs.regions.join(", "),
    tags: needs.tags.join(", "),
    preferTags: needs.prefer_tags.join(", "),
    excludeTags: needs.exclude_tags.join(", "),
    excludeHosts: needs.exclude_hosts.join(", "),
    host: needs.host ?? "",
    properties: pairs(needs.properties),
    meshVersion: needs.mesh_version ?? "",
    isolation: needs.isolation ?? "",
  };
}

function leftOut(job: JobDetail): string[] {
  const left: string[] = [];
  if (job.compare === "function") left.push("the function that compared its results");
  // Nobody knows whether it was asked for, or was what the hub chose that day.
  if (job.max_price > 0) left.push(`its maximum price of ${creditText(job.max_price)} credits per hour`);
  if (job.after.length > 0) left.push("the jobs it waited for");
  if (job.group_id) left.push("its group");
  if (Object.values(job.spec.env).some((value) => value.includes("\n"))) left.push("line breaks in its environment");
  return left;
}

function pairs(of: Record<string, string>): string {
  return Object.entries(of)
    .map(([name, value]) => `${name}=${value.replaceAll("\n", " ")}`)
    .join("\n");
}

function isFileName(name: string): boolean {
  return /^[\w.-]+\.\w+$/.test(name);
}
