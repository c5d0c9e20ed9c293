"use client";
import { StateBadge } from "@/components/ui/badge";
import { Back, Detail } from "@/components/ui/detail";
import { Page } from "@/components/ui/page";
import { Tabs } from "@/components/ui/tabs";
import { $api, type Schemas } from "@/lib/api/client";
import { JobActions } from "./job-actions";
import { JobAttempts } from "./job-attempts";
import { JobCost } from "./job-cost";
import { JobFiles } from "./job-files";
import { JobGraph } from "./job-graph";
import { JobLogs } from "./job-logs";
import { JobSpec } from "./job-spec";
import { JobError, JobSummary } from "./job-summary";
import { JobTimeline } from "./job-timeline";
import { JobUsage } from "./job-usage";
import { JobWhy } from "./job-why";

export type JobDetail = Schemas["JobDetail"];

const LIVE_MS = 3000; // the stream of news does not report progress

export function isOver(job: { finished_at_ms?: number | null }): boolean {
  return job.finished_at_ms != null;
}

export function JobPage({ id }: { id: string }) {
  const query = $api.useQuery(
    "get",
    "/jobs/{job_id}",
    { params: { path: { job_id: id } } },
    { refetchInterval: ({ state }) => (state.data && isOver(state.data) ? false : LIVE_MS) },
  );
  return (
    <Detail kind="job" id={id} query={query}>
      {(job) => <Known job={job} />}
    </Detail>
  );
}

function Known({ job }: { job: JobDetail }) {
  const waits = job.state === "queued" || job.state === "failed" || job.state === "expired";
  return (
    <Page
      title={job.name}
      above={<Back kind="job" />}
      heading={
        <>
          <bdi>{job.name}</bdi>
          {job.key && <bdi className="ml-2 font-normal text-muted">{job.key}</bdi>}
        </>
      }
      note={
        <span className="mt-1.5 flex flex-wrap items-center gap-x-3 gap-y-1" aria-live="polite">
          <StateBadge state={job.state} />
          <bdi className="break-words">{job.status}</bdi>
        </span>
      }
      actions={<JobActions job={job} />}
    >
      <JobError job={job} />
      {waits && <JobWhy jobId={job.id} state={job.state} />}
      <JobSummary job={job} />
      <Tabs
        label="Parts of the job"
        tabs={[
          { value: "logs", label: "Output", content: <JobLogs job={job} /> },
          { value: "files", label: "Results and files", content: <JobFiles job={job} /> },
          { value: "timeline", label: "Timeline", content: <JobTimeline job={job} /> },
          { value: "attempts", label: `Attempts (${job.tries?.length ?? 0})`, content: <JobAttempts job={job} /> },
          { value: "usage", label: "Usage", content: <JobUsage job={job} /> },
          { value: "cost", label: "Cost", content: <JobCost job={job} /> },
          { value: "graph", label: "Graph", content: <JobGraph jobId={job.id} /> },
          { value: "spec", label: "Specification", content: <JobSpec job={job} /> },
        ]}
      />
    </Page>
  );
}
