"use client";
import { isOver, type JobDetail } from "./job-page";
import { LogView } from "./log-view";
import { useLogs } from "./use-logs";

export function JobLogs({ job }: { job: JobDetail }) {
  const ended = isOver(job);
  // Of several runs, the hub decides at the end whose output counts.
  const generation = ended && (job.tries?.length ?? 0) > 1 ? "final" : "live";
  const logs = useLogs(job.id, generation);
  const empty =
    logs.ended || ended
      ? "The job printed nothing."
      : job.state === "running"
        ? "The job has printed nothing yet. Lines appear here as it prints them."
        : "The job's output appears here once it runs.";
  return <LogView logs={logs} jobId={job.id} empty={empty} idle={job.state === "queued"} />;
}
