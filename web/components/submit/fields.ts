// Every option of a job: how the form shows and reads it, and its names in the API, on the command line and in the SDK.
import { parseCredits, plainCredits } from "@/lib/format";
import { parseMegabytes, parseSeconds, sizeText, timeText } from "./amounts";

type Value = string | number | string[] | Record<string, string>;

/** How a text is read (null: it cannot be), and a value written as text. */
interface FieldType {
  read: (text: string) => Value | null;
  write: (value: never) => string;
  wrong: string;
  isText?: boolean; // on the command line and in the SDK, too
}

const splitList = (text: string) => text.split(/[\s,]+/).filter(Boolean);
const splitLines = (text: string) => text.split("\n").flatMap((line) => line.trim() || []);

function readPairs(text: string): Record<string, string> | null {
  const pairs = splitLines(text).map((line): [string, string] => [line.split("=")[0] ?? "", line.slice(line.indexOf("=") + 1)]);
  return splitLines(text).every((line) => line.indexOf("=") > 0) ? Object.fromEntries(pairs) : null;
}

function writePairs(pairs: Record<string, string>): string {
  return Object.entries(pairs)
    .map(([name, value]) => `${name}=${value.replaceAll("\n", " ")}`)
    .join("\n");
}

export const TYPES = {
  text: { read: (text) => text, write: String, wrong: "" },
  list: { read: splitList, write: (words: string[]) => words.join(", "), wrong: "" },
  lines: { read: splitLines, write: (lines: string[]) => lines.join("\n"), wrong: "" },
  pairs: { read: readPairs, write: writePairs, wrong: "Write NAME=VALUE, one per line." },
  size: { read: parseMegabytes, write: sizeText, wrong: "Write 16, 16GB or 512MB.", isText: true },
  time: { read: parseSeconds, write: timeText, wrong: "Write 90, 10m or 2h.", isText: true },
  credits: { read: parseCredits, write: plainCredits, wrong: "Write an amount such as 2.5.", isText: true },
  number: { read: (text) => (/^\d*\.?\d+$/.test(text) ? Number(text) : null), write: String, wrong: "Write a number." },
  whole: { read: (text) => (/^-?\d{1,15}$/.test(text) ? Number(text) : null), write: String, wrong: "Write a whole number." },
} satisfies Record<string, FieldType>;

interface Field {
  api?: `${"needs" | "spec" | "terms"}.${string}`;
  type: keyof typeof TYPES;
  label: string;
  brief?: string; // instead of the label in the section's summary
  cli?: string; // where the option is not called like the field, which has the SDK's name
  hint?: string;
  placeholder?: string;
  suggest?: string[] | "tiers" | "regions" | "groups";
  choices?: string[];
  isWide?: boolean;
  isFresh?: boolean; // not copied from an earlier job
}

const ISOLATION = ["process", "namespace", "container", "gvisor"];
const VERIFY = ["none", "adaptive", "quorum:2", "quorum:3", "confidence:0.99", "confidence:0.999"];
const COMPARE = ["exact", "tolerance:1e-6", "tolerance:1e-9"];
const RUNS = "Runs form a group; each finds its number in COMPUTEPOOL_SLICE";
const HOSTS = "files.example.org:443, *.example.com:443; on nodes whose owners allow it";

const ALL = {
  cores: { api: "needs.cores", type: "number", label: "Cores", placeholder: "1" },
  ram: { api: "needs.ram_mb", type: "size", label: "RAM", hint: "4, 4GB, 512MB", placeholder: "the node's share" },
  disk: { api: "needs.disk_mb", type: "size", label: "Disk", placeholder: "256MB" },
  gpus: { api: "needs.gpus", type: "whole", label: "GPUs", placeholder: "0" },
  vram: { api: "needs.vram_mb", type: "size", label: "VRAM per GPU", hint: "16, 16GB", placeholder: "any" },
  tier: { api: "needs.tiers", type: "list", label: "Tier", hint: "Any of these", placeholder: "any tier", suggest: "tiers" },
  compute_capability: { api: "needs.compute_capability", type: "text", label: "Compute capability", hint: "Of each GPU: 8.0" },
  cuda: { api: "needs.cuda", type: "text", label: "CUDA", hint: "That the driver runs: >=12.4", placeholder: "any" },
  driver: { api: "needs.driver", type: "text", label: "GPU driver", hint: ">=550", placeholder: "any" },
  timeout: { api: "spec.timeout_s", type: "time", label: "Time limit", hint: "90, 10m, 2h", placeholder: "1h" },
  retries: { api: "terms.retries", type: "whole", label: "Retries", hint: "If the job itself fails", placeholder: "0" },
  priority: { api: "terms.priority", type: "whole", label: "Priority", hint: "Among your jobs, −100 to 100", placeholder: "0" },
  name: { type: "text", label: "Name", isFresh: true },
  slices: { type: "whole", label: "Runs", hint: RUNS, placeholder: "1", isFresh: true },
  group: { type: "text", label: "Group", hint: "Name or ID; a new name creates a group", suggest: "groups", isFresh: true },
  after: { api: "terms.after", type: "list", label: "Run after these jobs", brief: "After", hint: "Job IDs", isFresh: true },
  dependencies: {
    api: "spec.dependencies",
    type: "lines",
    label: "Python packages",
    cli: "--dep",
    hint: "One per line; wheels only",
  },
  env: { api: "spec.env", type: "pairs", label: "Environment", hint: "NAME=VALUE, one per line", placeholder: "SEED=7" },
  net: {
    api: "spec.net",
    type: "list",
    label: "Hosts it may reach",
    brief: "Network",
    hint: HOSTS,
    placeholder: "none",
    isWide: true,
  },
  region: { api: "needs.regions", type: "list", label: "Regions", placeholder: "any region", suggest: "regions" },
  isolation: { api: "needs.isolation", type: "text", label: "Isolation", hint: "At least this strong", choices: ISOLATION },
  tags: { api: "needs.tags", type: "list", label: "Required tags", cli: "--tag" },
  labels: {
    api: "spec.labels",
    type: "list",
    label: "Labels of the job",
    cli: "--label",
    hint: "Owners can allow or deny jobs by label",
  },
  prefer_tags: { api: "needs.prefer_tags", type: "list", label: "Preferred tags", cli: "--prefer-tag" },
  exclude_tags: { api: "needs.exclude_tags", type: "list", label: "Excluded tags", cli: "--exclude-tag" },
  host: { api: "needs.host", type: "text", label: "This node only", hint: "Name or ID" },
  exclude_hosts: { api: "needs.exclude_hosts", type: "list", label: "Excluded nodes", cli: "--exclude-host" },
  properties: {
    api: "needs.properties",
    type: "pairs",
    label: "Properties",
    cli: "--property",
    hint: "NAME=VALUE, one per line",
  },
  mesh_version: { api: "needs.mesh_version", type: "text", label: "Mesh version" },
  max_price: {
    api: "terms.max_price",
    type: "credits",
    label: "Maximum price per hour and run",
    brief: "Per hour",
    hint: "0: only on your own nodes",
    isFresh: true,
  },
  budget: {
    api: "terms.budget",
    type: "credits",
    label: "Budget for all runs",
    brief: "In total",
    hint: "Never exceeded",
    isFresh: true,
  },
  verify: { api: "terms.verify", type: "text", label: "Method", placeholder: "hub default", suggest: VERIFY },
  compare: { api: "terms.compare", type: "text", label: "Comparison of results", placeholder: "exact", suggest: COMPARE },
} satisfies Record<string, Field>;

export type TextName = keyof typeof ALL;
export const FIELDS: Record<TextName, Field> = ALL;
export const NAMES = Object.keys(ALL) as TextName[];

export interface FieldSection {
  title: string;
  none: string; // the summary when nothing is filled in
  names: TextName[];
}

export const SECTIONS: FieldSection[] = [
  {
    title: "Machine",
    none: "any core",
    names: ["cores", "ram", "disk", "gpus", "vram", "tier", "compute_capability", "cuda", "driver"],
  },
  { title: "Time and retries", none: "at most an hour, no retries", names: ["timeout", "retries", "priority"] },
  { title: "Name, runs and group", none: "one run", names: ["name", "slices", "group", "after"] },
  { title: "Packages, network, environment", none: "standard library, no network", names: ["dependencies", "env", "net"] },
  {
    title: "Where it may run",
    none: "any region",
    names: [
      ...(["region", "isolation", "tags", "labels", "prefer_tags"] as const),
      ...(["exclude_tags", "host", "exclude_hosts", "properties", "mesh_version"] as const),
    ],
  },
  { title: "Price", none: "at most about twice the current price", names: ["max_price", "budget"] },
  { title: "Verification", none: "hub default", names: ["verify", "compare"] },
];

/** Where the API has the field: `needs`, `spec` or `terms`, and its name there. */
export function apiName(name: TextName): ["needs" | "spec" | "terms", string] | null {
  const [part, key] = FIELDS[name].api?.split(".") ?? [];
  return part && key ? [part as "needs" | "spec" | "terms", key] : null;
}

/** What a script or command may declare about itself. */
export const FLAGS = [
  {
    name: "checkpoints",
    label: "Saves checkpoints",
    hint: "If its node is lost, another one resumes from the last checkpoint.",
    // The command line and the SDK search a script for these, so they must be told if it is not so.
    guess: /checkpoint|restored|stopping/,
  },
  {
    name: "moves",
    label: "Moves between nodes",
    hint: "The job itself names the nodes it moves to.",
    guess: /dispatch_to|::move/,
  },
] as const;
