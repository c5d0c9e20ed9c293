"use client";
import { ChevronDown, Download } from "lucide-react";
import { useState } from "react";
import { Card } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { Empty } from "@/components/ui/states";
import { $api, hubUrl } from "@/lib/api/client";
import { bytes, count, pluralize } from "@/lib/format";
import { safeFileName } from "@/lib/save";
import { FilePreview, type FileRef } from "./file-preview";
import { isOver, type JobDetail } from "./job-page";
import { JobResult, WrittenValue } from "./job-result";

const OPEN_AT_FIRST = 6;
const SHOWN_AT_FIRST = 50;
const LOOKS_LIKE_A_PICTURE = /\.(png|jpe?g|gif|webp|avif)$/i;

export function JobFiles({ job }: { job: JobDetail }) {
  const outputs = job.outputs ?? [];
  const inputs = job.spec.inputs ?? [];
  const ended = isOver(job);
  return (
    <div className="grid grid-cols-1 gap-4">
      {ended && <JobResult job={job} />}
      {job.corrected && <Corrected job={job} />}
      <Card title="Files" note={outputs.length > 0 ? sum(outputs) : undefined}>
        {outputs.length > 0 ? (
          <Files files={outputs} open />
        ) : (
          <Empty title={ended ? "No files" : "No files yet"}>
            <p>
              Files that a job writes to <code>outputs/</code> are kept, and appear here when it ends.
            </p>
          </Empty>
        )}
      </Card>
      {job.checkpoint && <Checkpoint jobId={job.id} />}
      {inputs.length > 0 && (
        <Card title="Inputs" note={sum(inputs)}>
          <Files files={inputs} />
        </Card>
      )}
    </div>
  );
}

function sum(files: FileRef[]): string {
  const size = files.reduce((total, file) => total + file.size, 0);
  return `${pluralize(files.length, "file")}, ${bytes(size)}`;
}

function Corrected({ job }: { job: JobDetail }) {
  const { corrected } = job;
  if (!corrected) return null;
  const files = corrected.outputs ?? [];
  return (
    <Card title="Corrected result" note="Computed by nodes of two other owners">
      <div className="grid grid-cols-1 gap-4">
        <WrittenValue text={corrected.result ?? null} artifact={corrected.result_artifact ?? null} jobId={job.id} />
        {files.length > 0 && <Files files={files} open />}
      </div>
    </Card>
  );
}

function Checkpoint({ jobId }: { jobId: string }) {
  const query = $api.useQuery("get", "/jobs/{job_id}/checkpoint", { params: { path: { job_id: jobId } } });
  const files = query.data?.outputs ?? [];
  if (files.length === 0) return null;
  return (
    <Card title="Checkpoint" note={`Where the job resumes if it has to restart: ${sum(files)}`}>
      <Files files={files} />
    </Card>
  );
}

function Files({ files, open = false }: { files: FileRef[]; open?: boolean }) {
  const [all, setAll] = useState(false);
  const shown = all ? files : files.slice(0, SHOWN_AT_FIRST);
  const pictures = files.filter((file) => LOOKS_LIKE_A_PICTURE.test(file.name)).slice(0, OPEN_AT_FIRST);
  return (
    <>
      <ul className="-my-2 grid grid-cols-1 divide-y divide-line/70">
        {shown.map((file) => (
          <File key={file.name} file={file} openAtFirst={open && pictures.includes(file)} />
        ))}
      </ul>
      {shown.length < files.length && (
        <button type="button" className="link mt-3" onClick={() => setAll(true)}>
          Show all {count(files.length)}
        </button>
      )}
    </>
  );
}

function File({ file, openAtFirst }: { file: FileRef; openAtFirst: boolean }) {
  const [open, setOpen] = useState(openAtFirst);
  return (
    <li className="grid grid-cols-1 gap-2 py-2">
      <div className="flex items-center gap-3">
        <button
          type="button"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
          className="flex min-w-0 grow items-center gap-2 text-left hover:text-accent"
        >
          <ChevronDown className={classes("shrink-0 text-muted", !open && "-rotate-90")} />
          <bdi className="break-all">{file.name}</bdi>
        </button>
        <span className="num shrink-0 text-muted text-sm">{bytes(file.size)}</span>
        <a
          href={hubUrl(["artifacts", file.digest])}
          download={safeFileName(file.name)}
          aria-label={`Download ${file.name}`}
          title={`Download · SHA-256 ${file.digest}`}
          className="inline-flex size-9 shrink-0 items-center justify-center rounded-control text-muted hover:bg-hover hover:text-ink"
        >
          <Download />
        </a>
      </div>
      {open && (
        <div className="min-w-0 pl-6">
          <FilePreview file={file} />
        </div>
      )}
    </li>
  );
}
