// What a form asks for as the options that the command line and the SDK share, so that both say the same.
import { creditText, sizeText, timeText } from "./amounts";
import type { Form } from "./form";
import type { Reading } from "./request";

export interface JobOption {
  cli: string;
  sdk: string;
  value: string | number | boolean | string[] | Record<string, string>;
}

/** Programs that look at a script's text to find out what it does are told, where they could think otherwise. */
const SAVES = /checkpoint|restored|stopping/;
const MOVES = /dispatch_to|::move/;

export function optionsOf(form: Form, { spec, terms, runs }: Reading): JobOption[] {
  const needs = spec.needs ?? {};
  const found: (JobOption | null)[] = [
    option("--name", "name", form.name.trim() || undefined),
    option("--slices", "slices", runs > 1 ? runs : undefined),
    option("--group", "group", form.group.trim() || undefined),
    option("--cores", "cores", needs.cores),
    option("--ram", "ram", needs.ram_mb == null ? undefined : sizeText(needs.ram_mb)),
    option("--disk", "disk", needs.disk_mb === undefined ? undefined : sizeText(needs.disk_mb)),
    option("--gpus", "gpus", needs.gpus),
    option("--vram", "vram", needs.vram_mb === undefined ? undefined : sizeText(needs.vram_mb)),
    option("--tier", "tier", needs.tiers),
    option("--region", "region", needs.regions),
    option("--tag", "tags", needs.tags),
    option("--prefer-tag", "prefer_tags", needs.prefer_tags),
    option("--exclude-tag", "exclude_tags", needs.exclude_tags),
    option("--exclude-host", "exclude_hosts", needs.exclude_hosts),
    option("--host", "host", needs.host),
    option("--property", "properties", needs.properties),
    option("--mesh-version", "mesh_version", needs.mesh_version),
    option("--isolation", "isolation", needs.isolation),
    option("--net", "net", spec.net),
    option("--label", "labels", spec.labels),
    option("--timeout", "timeout", spec.timeout_s === undefined ? undefined : timeText(spec.timeout_s)),
    option("--retries", "retries", terms.retries),
    option("--priority", "priority", terms.priority),
    option("--max-price", "max_price", terms.max_price === undefined ? undefined : creditText(terms.max_price ?? 0)),
    option("--budget", "budget", terms.budget === undefined ? undefined : creditText(terms.budget ?? 0)),
    option("--verify", "verify", terms.verify),
    option("--compare", "compare", terms.compare),
    option("--after", "after", terms.after),
    option("--dep", "dependencies", spec.dependencies),
    option("--env", "env", spec.env),
    option("--checkpoints", "checkpoints", declaration(form, form.checkpoints, SAVES)),
    option("--moves", "moves", declaration(form, form.moves, MOVES)),
  ];
  return found.filter((one) => one !== null);
}

function option(cli: string, sdk: string, value: JobOption["value"] | null | undefined): JobOption | null {
  return value === undefined || value === null ? null : { cli, sdk, value };
}

function declaration(form: Form, wanted: boolean, words: RegExp): boolean | undefined {
  if (wanted) return true;
  return form.kind === "script" && words.test(form.source) ? false : undefined;
}
