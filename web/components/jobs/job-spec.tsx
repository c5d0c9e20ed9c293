"use client";
import type { Route } from "next";
import { ButtonLink } from "@/components/ui/button";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Money } from "@/components/ui/values";
import { hubUrl, type Schemas } from "@/lib/api/client";
import { bytes, count, duration, megabytes } from "@/lib/format";
import { joinWords } from "@/lib/shell-words";
import type { JobDetail } from "./job-page";

type Needs = Schemas["Needs"];

export function JobSpec({ job }: { job: JobDetail }) {
  const { spec } = job;
  return (
    <div className="grid grid-cols-1 gap-4">
      <Card title="Work" note={spec.kind} aside={<Change job={job} />}>
        <div className="grid grid-cols-1 gap-3">
          {spec.source && <Code label="Source" text={spec.source} />}
          {spec.argv.length > 0 && (
            <Code label={spec.kind === "command" ? "Command" : "Arguments"} text={joinWords(spec.argv)} wrap />
          )}
          <Called job={job} />
        </div>
      </Card>
      <Card title="Requirements">
        <Facts columns={3}>
          <NeedFacts needs={spec.needs} />
          <Fact name="Time limit">{duration(spec.timeout_s * 1000)}</Fact>
          <Fact name="Maximum price">
            <Money micro={job.max_price} unit /> <span className="text-muted">per hour</span>
          </Fact>
          <Fact name="Priority · Retries">
            {job.priority} <span className="text-muted">·</span> {count(job.retries)}
          </Fact>
          <Fact name="Verification">
            {job.verify}
            {job.compare !== "exact" && <span className="text-muted">, compared by {job.compare}</span>}
          </Fact>
          <Fact name="Checkpoints">{spec.moves ? "yes, moves itself" : spec.checkpoints ? "yes" : "no"}</Fact>
          <Fact name="Sealed">
            {spec.seal_to ? <span className="break-all font-mono text-sm">to {spec.seal_to}</span> : "no"}
          </Fact>
          <Words name="Labels" words={spec.labels} />
        </Facts>
      </Card>
      <Card title="Environment">
        <Facts columns={3}>
          <Words name="Packages" words={spec.dependencies} none="standard library only" />
          <Words name="Variables (names only)" words={Object.keys(spec.env)} none="none" />
          <Words name="Allowed hosts" words={spec.net} none="no network" />
        </Facts>
      </Card>
    </div>
  );
}

function Change({ job }: { job: JobDetail }) {
  if (!job.can_resubmit || (job.spec.kind !== "script" && job.spec.kind !== "command")) return null;
  return (
    <ButtonLink small href={`/submit?again=${encodeURIComponent(job.id)}` as Route}>
      Change and submit
    </ButtonLink>
  );
}

function Called({ job }: { job: JobDetail }) {
  const { spec } = job;
  if (!spec.function && !spec.function_artifact) return null;
  return (
    <p className="text-muted">
      {spec.kind === "class" ? "A job class" : "A Python function"}, pickled
      {spec.function && `, ${bytes(Math.floor((spec.function.length * 3) / 4))}`}.{" "}
      {spec.function_artifact && (
        <a className="link" href={hubUrl(["artifacts", spec.function_artifact])} download={`${job.id}-function.pickle`}>
          Download
        </a>
      )}
    </p>
  );
}

function NeedFacts({ needs }: { needs: Needs }) {
  return (
    <>
      <Fact name="Cores">{count(needs.cores)}</Fact>
      <Fact name="Memory · Disk">
        {needs.ram_mb == null ? "share of its cores" : megabytes(needs.ram_mb)} <span className="text-muted">·</span>{" "}
        {megabytes(needs.disk_mb)}
      </Fact>
      <Fact name="GPUs">
        {needs.gpus === 0 ? "none" : count(needs.gpus)}
        {needs.vram_mb > 0 && ` with ${megabytes(needs.vram_mb)} each`}
      </Fact>
      {needs.compute_capability && <Fact name="Compute capability">{needs.compute_capability} or higher</Fact>}
      {needs.cuda && <Fact name="CUDA">{needs.cuda}</Fact>}
      {needs.driver && <Fact name="GPU driver">{needs.driver}</Fact>}
      <Words name="Tiers" words={needs.tiers} />
      <Words name="Regions" words={needs.regions} none="any region" />
      <Words name="Tags" words={needs.tags} />
      <Words name="Preferred tags" words={needs.prefer_tags} />
      <Words name="Excluded tags and nodes" words={[...needs.exclude_tags, ...needs.exclude_hosts]} />
      <Words name="Properties" words={Object.entries(needs.properties).map(([name, value]) => `${name}=${value}`)} />
      {needs.host && <Fact name="Node">{needs.host}</Fact>}
      {needs.python && <Fact name="Python">{needs.python}</Fact>}
      {needs.isolation && <Fact name="Isolation">at least {needs.isolation}</Fact>}
      {needs.mesh_version && <Fact name="Mesh version">{needs.mesh_version}</Fact>}
    </>
  );
}

function Words({ name, words, none }: { name: string; words: string[]; none?: string }) {
  if (words.length === 0 && !none) return null;
  return (
    <Fact name={name}>
      {words.length === 0 ? (
        <span className="text-muted">{none}</span>
      ) : (
        <span className="flex flex-wrap gap-x-2 gap-y-1">
          {words.map((word) => (
            <bdi key={word} className="break-all rounded-md bg-sunken px-1.5 font-mono text-sm">
              {word}
            </bdi>
          ))}
        </span>
      )}
    </Fact>
  );
}
