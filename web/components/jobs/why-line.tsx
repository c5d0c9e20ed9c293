"use client";
import { useQuery } from "@tanstack/react-query";
import { client } from "@/lib/api/client";
import type { Job } from "./job-rows";

const FRESH_MS = 30_000;

async function ask(jobId: string): Promise<string> {
  const { data, error } = await client.GET("/jobs/{job_id}/why", { params: { path: { job_id: jobId } } });
  if (data === undefined) throw error;
  return data.sentence;
}

/** The hub's sentence about a job; for one that waits for a node, why it does. Jobs of a group wait for the same. */
export function WhyLine({ job }: { job: Job }) {
  const waits = job.state === "queued" && job.reason === "waiting_for_node";
  const why = useQuery({
    queryKey: ["why", job.group_id ? `${job.group_id} ${job.name}` : job.id],
    queryFn: () => ask(job.id),
    enabled: waits,
    staleTime: FRESH_MS,
    refetchInterval: FRESH_MS,
  });
  const sentence = (waits && why.data) || job.status;
  return (
    <div className="truncate text-muted text-sm" title={sentence}>
      <bdi>{sentence}</bdi>
    </div>
  );
}
