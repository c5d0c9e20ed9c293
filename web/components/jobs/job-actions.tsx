"use client";
import { useQueryClient } from "@tanstack/react-query";
import { Ban, Download, RotateCcw } from "lucide-react";
import type { Route } from "next";
import { useRouter } from "next/navigation";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Confirm, Dialog } from "@/components/ui/dialog";
import { Segments } from "@/components/ui/segments";
import { Failure } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Money } from "@/components/ui/values";
import { $api, client } from "@/lib/api/client";
import { useIdempotencyKey } from "@/lib/use-idempotency-key";
import { DownloadAll } from "./download-all";
import type { JobDetail } from "./job-page";

export function JobActions({ job }: { job: JobDetail }) {
  const outputs = job.outputs ?? [];
  return (
    <>
      {outputs.length > 0 && (
        <DownloadAll
          files={outputs}
          name={job.id}
          hint={`pool jobs result ${job.id} --out results`}
          trigger={(save, pending) => (
            <Button onClick={save} pending={pending}>
              {!pending && <Download size={16} aria-hidden="true" />} Download all
            </Button>
          )}
        />
      )}
      {job.can_resubmit && <Resubmit job={job} />}
      {job.can_cancel && <Cancel job={job} />}
    </>
  );
}

function Cancel({ job }: { job: JobDetail }) {
  const queries = useQueryClient();
  const toast = useToast();
  const cancel = async () => {
    const { error } = await client.POST("/jobs/{job_id}/cancel", { params: { path: { job_id: job.id } } });
    if (error) throw error;
    toast.success("Job cancelled.");
    await queries.invalidateQueries({ queryKey: ["get", "/jobs/{job_id}"] });
  };
  return (
    <Confirm
      title="Cancel this job?"
      action="Cancel the job"
      danger
      confirm={cancel}
      trigger={(open) => (
        <Button look="danger" onClick={open}>
          <Ban size={16} aria-hidden="true" /> Cancel
        </Button>
      )}
    >
      If it is running, it is stopped with everything it started. This cannot be undone.
    </Confirm>
  );
}

/** The same once more, as a new job: with the limits of the first, or with those of today. */
function Resubmit({ job }: { job: JobDetail }) {
  const [open, setOpen] = useState(false);
  const [terms, setTerms] = useState<"same" | "today">("same");
  const router = useRouter();
  const idempotency = useIdempotencyKey();
  const resubmit = $api.useMutation("post", "/jobs/{job_id}/resubmit");
  const run = () => {
    const body = { terms };
    resubmit.mutate(
      { params: { path: { job_id: job.id }, header: idempotency.headers({ id: job.id, ...body }) }, body },
      {
        onSuccess: (reply) => {
          idempotency.reset();
          setOpen(false);
          const [first] = reply.job_ids;
          if (first) router.push(`/jobs?id=${encodeURIComponent(first)}` as Route);
        },
      },
    );
  };
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <RotateCcw size={16} aria-hidden="true" /> Run again
      </Button>
      <Dialog
        open={open}
        onClose={() => setOpen(false)}
        title="Run it again?"
        note="Submits the same work as a new job, at your expense."
      >
        <Segments
          label="Terms"
          options={[
            { value: "same", label: "With the same limits" },
            { value: "today", label: "At today’s prices" },
          ]}
          value={terms}
          onChange={(value) => setTerms(value as "same" | "today")}
        />
        <p className="text-muted">
          {terms === "same" ? (
            <>
              It may cost up to <Money micro={job.max_price ?? 0} unit /> per hour, as the first one.
            </>
          ) : (
            "The hub sets the maximum cost, as for a new job without limits."
          )}
        </p>
        {resubmit.error && <Failure error={resubmit.error} />}
        <div className="flex justify-end gap-2">
          <Button onClick={() => setOpen(false)}>Not now</Button>
          <Button look="primary" pending={resubmit.isPending} onClick={run}>
            Run again
          </Button>
        </div>
      </Dialog>
    </>
  );
}
