"use client";
// All that can be asked for beside the work itself, in parts.
import { CheckField, SelectField, TextArea, TextField } from "@/components/ui/field";
import { Choices, type FieldsProps, hasError, summarize, useText } from "./field-parts";
import type { FieldName } from "./form";
import { Section } from "./section";
import { useSuggestions } from "./suggestions";

const MACHINE: FieldName[] = ["cores", "ram", "disk", "gpus", "vram", "tiers"];
const WHERE: FieldName[] = [
  "regions",
  "tags",
  "preferTags",
  "excludeTags",
  "host",
  "excludeHosts",
  "properties",
  "meshVersion",
  "isolation",
  "labels",
];
const TIME: FieldName[] = ["timeout", "retries", "priority", "checkpoints", "moves"];
const MONEY: FieldName[] = ["maxPrice", "budget"];
const TRUST: FieldName[] = ["verify", "compare"];
const GROUPING: FieldName[] = ["name", "runs", "group", "after"];
const ENVIRONMENT: FieldName[] = ["dependencies", "env", "net"];

export function Machine(props: FieldsProps) {
  const { form, errors } = props;
  const text = useText(props);
  const { tiers } = useSuggestions();
  const line = summarize(
    form,
    [
      ["cores", "cores"],
      ["ram", "RAM"],
      ["disk", "disk"],
      ["gpus", "GPUs"],
      ["vram", "VRAM"],
      ["tiers", ""],
    ],
    "any core",
  );
  return (
    <Section title="Machine" said={line} wrong={hasError(errors, MACHINE)}>
      <div className="grid grid-cols-2 gap-4 sm:grid-cols-3">
        <TextField label="Cores" inputMode="decimal" placeholder="1" {...text("cores")} />
        <TextField label="RAM" placeholder="the node's share" hint="4, 4GB, 512MB" {...text("ram")} />
        <TextField label="Disk" placeholder="256MB" {...text("disk")} />
        <TextField label="GPUs" inputMode="numeric" placeholder="0" {...text("gpus")} />
        <TextField label="VRAM per GPU" placeholder="any" hint="16, 16GB" {...text("vram")} />
        <TextField label="Tier" placeholder="any" list="submit-tiers" hint="Any of these" {...text("tiers")} />
      </div>
      <Choices id="submit-tiers" values={tiers} />
    </Section>
  );
}

export function Place(props: FieldsProps) {
  const { form, errors } = props;
  const text = useText(props);
  const { regions } = useSuggestions();
  const line = summarize(
    form,
    [
      ["regions", "in"],
      ["tags", "tags"],
      ["host", "on"],
      ["isolation", "isolation"],
      ["labels", "labels"],
      ["preferTags", "rather"],
      ["excludeTags", "not"],
      ["excludeHosts", "not on"],
      ["properties", ""],
      ["meshVersion", "mesh"],
    ],
    "anywhere",
  );
  return (
    <Section title="Where it may run" said={line} wrong={hasError(errors, WHERE)}>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Regions" placeholder="any" list="submit-regions" hint="in, eu, us …" {...text("regions")} />
        <SelectField
          label="Isolation"
          hint="At least this strong"
          options={[
            { value: "", label: "any" },
            { value: "process", label: "process" },
            { value: "namespace", label: "namespace" },
            { value: "container", label: "container" },
            { value: "gvisor", label: "gvisor" },
          ]}
          {...text("isolation")}
        />
        <TextField label="Required tags" {...text("tags")} />
        <TextField label="Labels of the job" hint="The kind of work; owners' rules refer to it" {...text("labels")} />
        <TextField label="Preferred tags" {...text("preferTags")} />
        <TextField label="Excluded tags" {...text("excludeTags")} />
        <TextField label="This node only" hint="Name or ID" {...text("host")} />
        <TextField label="Excluded nodes" {...text("excludeHosts")} />
        <TextArea label="Properties" rows={2} hint="NAME=VALUE, one per line" {...text("properties")} />
        <TextField label="Mesh version" {...text("meshVersion")} />
      </div>
      <Choices id="submit-regions" values={regions} />
    </Section>
  );
}

export function Time(props: FieldsProps) {
  const { form, errors, change } = props;
  const text = useText(props);
  const pairs: [FieldName, string][] = [
    ["timeout", "at most"],
    ["retries", "retries"],
    ["priority", "priority"],
    ["checkpoints", "checkpoints"],
    ["moves", "moves"],
  ];
  return (
    <Section title="Time and retries" said={summarize(form, pairs, "at most an hour, no retries")} wrong={hasError(errors, TIME)}>
      <div className="grid grid-cols-2 gap-4 sm:grid-cols-3">
        <TextField label="Time limit" placeholder="1h" hint="90, 10m, 2h" {...text("timeout")} />
        <TextField label="Retries" inputMode="numeric" placeholder="0" hint="When the job itself fails" {...text("retries")} />
        <TextField
          label="Priority"
          inputMode="numeric"
          placeholder="0"
          hint="Among your jobs, −100 to 100"
          {...text("priority")}
        />
      </div>
      <CheckField
        label="Saves checkpoints"
        hint="If its node is lost, another one resumes from the last checkpoint."
        checked={form.checkpoints}
        onChange={(event) => change({ checkpoints: event.target.checked })}
      />
      <CheckField
        label="Moves between nodes"
        hint="The job itself names the nodes it moves to."
        checked={form.moves}
        onChange={(event) => change({ moves: event.target.checked })}
      />
    </Section>
  );
}

export function Price(props: FieldsProps) {
  const { form, errors } = props;
  const text = useText(props);
  const line = summarize(
    form,
    [
      ["maxPrice", "at most"],
      ["budget", "in total"],
    ],
    "about twice today’s price at most",
  );
  return (
    <Section title="Price" said={line} wrong={hasError(errors, MONEY)}>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Maximum price per hour and run"
          unit="credits"
          inputMode="decimal"
          hint="0: only on your own nodes"
          {...text("maxPrice")}
        />
        <TextField label="Budget for all runs" unit="credits" inputMode="decimal" hint="Never exceeded" {...text("budget")} />
      </div>
    </Section>
  );
}

export function Trust(props: FieldsProps) {
  const { form, errors } = props;
  const text = useText(props);
  const line = summarize(
    form,
    [
      ["verify", ""],
      ["compare", "compared by"],
    ],
    "hub default",
  );
  return (
    <Section title="Verification" said={line} wrong={hasError(errors, TRUST)}>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Method"
          list="submit-verify"
          placeholder="hub default"
          hint="none, adaptive, quorum:2 … quorum:5, or confidence:0.999"
          {...text("verify")}
        />
        <TextField
          label="Comparison of results"
          list="submit-compare"
          placeholder="exact"
          hint="exact, tolerance:1e-6 or tolerance:1e-6,1e-9"
          {...text("compare")}
        />
      </div>
      <Choices id="submit-verify" values={["none", "adaptive", "quorum:2", "quorum:3", "confidence:0.99", "confidence:0.999"]} />
      <Choices id="submit-compare" values={["exact", "tolerance:1e-6", "tolerance:1e-9"]} />
    </Section>
  );
}

export function Grouping(props: FieldsProps) {
  const { form, errors } = props;
  const text = useText(props);
  const { groups } = useSuggestions();
  const many = form.runs.trim() !== "1" && form.runs.trim() !== "";
  const pairs: [FieldName, string][] = [
    ["name", "called"],
    ["group", "group"],
    ["after", "after"],
  ];
  const line = summarize(form, pairs, many ? "" : "one run");
  return (
    <Section
      title="Name, runs and group"
      said={many ? `${form.runs} runs ${line && `· ${line}`}` : line}
      wrong={hasError(errors, GROUPING)}
    >
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Name" placeholder={form.kind === "script" ? form.file : "the program"} {...text("name")} />
        <TextField
          label="Runs"
          inputMode="numeric"
          hint="Runs form a group; each finds its number in COMPUTEPOOL_SLICE"
          {...text("runs")}
        />
        <TextField label="Group" list="submit-groups" hint="Name or ID; a new name creates a group" {...text("group")} />
        <TextField label="Run after these jobs" hint="Job IDs; they must succeed" {...text("after")} />
      </div>
      <Choices id="submit-groups" values={groups} />
    </Section>
  );
}

export function Environment(props: FieldsProps) {
  const { form, errors } = props;
  const text = useText(props);
  const pairs: [FieldName, string][] = [
    ["dependencies", "with"],
    ["net", "reaches"],
    ["env", ""],
  ];
  return (
    <Section
      title="Packages, network, environment"
      said={summarize(form, pairs, "standard library, no network")}
      wrong={hasError(errors, ENVIRONMENT)}
    >
      <div className="grid gap-4 sm:grid-cols-2">
        <TextArea
          label="Python packages"
          rows={3}
          placeholder="numpy==2.3"
          hint="One per line; wheels only"
          {...text("dependencies")}
        />
        <TextArea label="Environment" rows={3} placeholder="SEED=7" hint="NAME=VALUE, one per line" {...text("env")} />
      </div>
      <TextField
        label="Hosts it may reach"
        placeholder="none"
        hint="files.example.org:443, *.example.com:443 — on nodes whose owners allow it"
        {...text("net")}
      />
    </Section>
  );
}
