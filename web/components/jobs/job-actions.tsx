"use client";
import { Ban, Download, RotateCcw } from "lucide-react";
import { useRouter } from "next/navigation";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Confirm, Dialog } from "@/components/ui/dialog";
import { Form } from "@/components/ui/form";
import { Segments } from "@/components/ui/segments";
import { Money } from "@/components/ui/values";
import { $api, answerOf, client } from "@/lib/api/client";
import { jobHref } from "@/lib/links";
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
              {!pending && <Download />} Download all
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
  return (
    <Confirm
      title="Cancel this job?"
      action="Cancel the job"
      danger
      confirm={() => answerOf(client.POST("/jobs/{job_id}/cancel", { params: { path: { job_id: job.id } } }))}
      success={() => "Job cancelled."}
      trigger={(open) => (
        <Button look="danger" onClick={open}>
          <Ban /> Cancel
        </Button>
      )}
    >
      If it is running, it is stopped with everything it started. This cannot be undone.
    </Confirm>
  );
}

const TERMS = [
  { value: "same", label: "With the same limits" },
  { value: "today", label: "At current prices" },
];

/** Submits the same job again, with its price limit or with a new one. */
function Resubmit({ job }: { job: JobDetail }) {
  const [open, setOpen] = useState(false);
  const [terms, setTerms] = useState("same");
  const router = useRouter();
  const resubmit = $api.useMutation("post", "/jobs/{job_id}/resubmit", {
    onSuccess: ({ job_ids: [first] }) => {
      setOpen(false);
      if (first) router.push(jobHref(first));
    },
  });
  const send = () =>
    resubmit.mutate({ params: { path: { job_id: job.id } }, body: { terms: terms === "same" ? "same" : "today" } });
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <RotateCcw /> Run again
      </Button>
      <Dialog
        open={open}
        onClose={() => setOpen(false)}
        title="Run it again?"
        note="Submits the same work as a new job, at your expense."
      >
        <Form send={send} sending={resubmit} action="Run again" cancel={() => setOpen(false)}>
          <Segments label="Terms" options={TERMS} value={terms} onChange={setTerms} />
          <p className="text-muted">
            {terms === "same" ? (
              <>
                It may cost up to <Money micro={job.max_price ?? 0} unit /> per hour, like the first one.
              </>
            ) : (
              "The hub sets the maximum cost, as for a new job without limits."
            )}
          </p>
        </Form>
      </Dialog>
    </>
  );
}
