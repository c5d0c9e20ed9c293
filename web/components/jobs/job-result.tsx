"use client";
import { useQuery } from "@tanstack/react-query";
import { Card } from "@/components/ui/card";
import { Code, Copy } from "@/components/ui/copy";
import { Failure, Notice, QueryView, Skeleton } from "@/components/ui/states";
import { $api, hubUrl } from "@/lib/api/client";
import { errorToShow } from "@/lib/api/problem";
import { count } from "@/lib/format";
import { readArtifact } from "./artifacts";
import { Plain } from "./file-preview";
import type { JobDetail } from "./job-page";
import { WRITTEN_MAX, writeValue } from "./wire-value";

const READ_MAX = 1_000_000;

export function JobResult({ job }: { job: JobDetail }) {
  const hasValue = job.spec.kind === "function" || job.spec.kind === "class";
  const query = $api.useQuery("get", "/jobs/{job_id}/result", { params: { path: { job_id: job.id } } }, { enabled: hasValue });
  if (!hasValue) return null;
  return (
    <Card title="Result" note={job.spec.kind === "class" ? "What the job reported" : "What the function returned"}>
      <QueryView query={query} skeleton={<Skeleton className="h-10" />}>
        {(ended) =>
          ended.result == null && ended.result_artifact == null ? (
            <p className="text-muted">None: the job {job.state === "succeeded" ? "returned nothing" : `is ${job.state}`}.</p>
          ) : (
            <WrittenValue text={ended.result ?? null} artifact={ended.result_artifact ?? null} jobId={job.id} />
          )
        }
      </QueryView>
    </Card>
  );
}

/** A value from the API's answer, or from an artifact. */
export function WrittenValue({ text, artifact, jobId }: { text: string | null; artifact: string | null; jobId: string }) {
  const query = useQuery({
    queryKey: ["value", artifact],
    queryFn: async ({ signal }) => {
      const blob = await readArtifact(artifact ?? "", { first: READ_MAX, signal });
      return { text: await blob.text(), cut: blob.size >= READ_MAX };
    },
    enabled: artifact !== null,
    staleTime: "static",
  });
  if (artifact === null) return text === null ? null : <Value encoded={text} jobId={jobId} />;
  const error = errorToShow(query);
  if (error) return <Failure error={error} retry={() => void query.refetch()} />;
  if (!query.data) return <Skeleton className="h-10" />;
  const save = (
    <a className="link" href={hubUrl(["artifacts", artifact])} download={`${jobId}-result.json`}>
      Download
    </a>
  );
  if (query.data.text.startsWith("CPSEAL")) return <Sealed jobId={jobId} />;
  if (query.data.cut) return <p className="text-muted">The value is too long to be shown here. {save}</p>;
  return (
    <div className="grid grid-cols-1 gap-2">
      <Value encoded={query.data.text} jobId={jobId} />
      <p>{save}</p>
    </div>
  );
}

function Sealed({ jobId }: { jobId: string }) {
  return (
    <div className="grid grid-cols-1 gap-2">
      <p className="text-muted">The result is sealed: only your key opens it. On a machine that has it:</p>
      <Code label="Command to open the result" text={`pool jobs result ${jobId}`} />
    </div>
  );
}

function Value({ encoded, jobId }: { encoded: string; jobId: string }) {
  const written = writeValue(encoded);
  if (!written) return <Plain text={encoded.slice(0, WRITTEN_MAX)} name="the result" />;
  return (
    <div className="grid grid-cols-1 gap-2">
      <div className="relative">
        <Plain text={written.text} name="the result" />
        <div className="absolute top-1.5 right-3 rounded-md bg-sunken">
          <Copy text={written.text} label="Copy the result" />
        </div>
      </div>
      {written.cut && <p className="text-muted text-sm">The first {count(WRITTEN_MAX)} characters.</p>}
      {written.pickled && (
        <Notice>
          Part of it is pickled. Read it in Python: <code>pool.job("{jobId}").result()</code> with <code>allow_pickle=True</code>.
        </Notice>
      )}
    </div>
  );
}
