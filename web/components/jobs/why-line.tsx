"use client";
import { useQuery } from "@tanstack/react-query";
import { answerOf, client } from "@/lib/api/client";
import type { Job } from "./job-list";

const FRESH_MS = 30_000;

/** The job's status; if it waits for a node, the reason. */
export function WhyLine({ job }: { job: Job }) {
  const waits = job.state === "queued" && job.reason === "waiting_for_node";
  const why = useQuery({
    // Jobs of a group wait for the same reason.
    queryKey: ["why", job.group_id ? `${job.group_id} ${job.name}` : job.id],
    queryFn: () => answerOf(client.GET("/jobs/{job_id}/why", { params: { path: { job_id: job.id } } })),
    enabled: waits,
    staleTime: FRESH_MS,
    refetchInterval: FRESH_MS,
  });
  const sentence = (waits && why.data?.sentence) || job.status;
  return (
    <div className="truncate text-muted text-sm" title={sentence}>
      <bdi>{sentence}</bdi>
    </div>
  );
}
