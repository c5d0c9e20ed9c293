// What a person has filled in, as they wrote it. Empty means: as the hub does it when nobody says anything.
import type { Schemas } from "@/lib/api/client";

export type InputFile = Schemas["InputFile"];

export interface Form {
  kind: "script" | "command";
  file: string; // the script's name, without a folder
  source: string;
  args: string; // of the script, written as in a shell
  command: string;
  name: string;
  runs: string;
  inputs: InputFile[];
  cores: string;
  ram: string;
  disk: string;
  gpus: string;
  vram: string;
  tiers: string; // this and other lists: with commas between
  regions: string;
  tags: string;
  preferTags: string;
  excludeTags: string;
  excludeHosts: string;
  host: string;
  properties: string; // this and env: NAME=VALUE, one to a line
  meshVersion: string;
  isolation: string;
  net: string;
  labels: string;
  timeout: string;
  retries: string;
  priority: string;
  maxPrice: string;
  budget: string;
  verify: string;
  compare: string;
  group: string;
  after: string;
  dependencies: string; // one to a line
  env: string;
  checkpoints: boolean;
  moves: boolean;
  sealTo: string;
}

export type FieldName = keyof Form;
export type Errors = Partial<Record<FieldName, string>>;

export const EMPTY: Form = {
  kind: "script",
  file: "job.py",
  source: "",
  args: "",
  command: "",
  name: "",
  runs: "1",
  inputs: [],
  cores: "",
  ram: "",
  disk: "",
  gpus: "",
  vram: "",
  tiers: "",
  regions: "",
  tags: "",
  preferTags: "",
  excludeTags: "",
  excludeHosts: "",
  host: "",
  properties: "",
  meshVersion: "",
  isolation: "",
  net: "",
  labels: "",
  timeout: "",
  retries: "",
  priority: "",
  maxPrice: "",
  budget: "",
  verify: "",
  compare: "",
  group: "",
  after: "",
  dependencies: "",
  env: "",
  checkpoints: false,
  moves: false,
  sealTo: "",
};

/** The parts of a list; commas, spaces and lines all separate. */
export function splitList(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

export function splitLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
}

// Names of the API's fields that are not those of the form.
const OF_FIELD: Record<string, FieldName> = {
  argv: "args",
  ram_mb: "ram",
  disk_mb: "disk",
  vram_mb: "vram",
  prefer_tags: "preferTags",
  exclude_tags: "excludeTags",
  exclude_hosts: "excludeHosts",
  mesh_version: "meshVersion",
  timeout_s: "timeout",
  max_price: "maxPrice",
  confidence: "verify",
  group_id: "group",
  seal_to: "sealTo",
  items: "runs",
};

/** Where the form shows what the hub says about `spec.needs.tags.0`; null: the form has no place for it. */
export function fieldOf(path: string | null | undefined, form: Form): FieldName | null {
  const word = (path ?? "").split(".").find((part) => part !== "spec" && part !== "needs") ?? "";
  if (word === "argv") return form.kind === "command" ? "command" : "args";
  const name = OF_FIELD[word] ?? word;
  return name in EMPTY ? (name as FieldName) : null;
}
