"use client";
// ?again=JOB fills in the form from an earlier job.
import { type ReactNode, useEffect } from "react";
import { Link } from "@/components/ui/link";
import { Notice } from "@/components/ui/states";
import { $api } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { jobHref } from "@/lib/links";
import { useParam } from "@/lib/use-params";
import type { useDraft } from "./draft";
import { fromJob } from "./from-job";

export function useResubmit(draft: ReturnType<typeof useDraft>): { loading: boolean; notice: ReactNode } {
  const [id] = useParam("again");
  const path = { job_id: id };
  const job = $api.useQuery(
    "get",
    "/jobs/{job_id}",
    { params: { path } },
    { enabled: Boolean(id), staleTime: Number.POSITIVE_INFINITY },
  );
  const found = job.data ? fromJob(job.data) : undefined;
  const fill = found && draft.again !== id; // once: a reload must not undo later changes
  // biome-ignore lint/correctness/useExhaustiveDependencies: the draft changes with every key
  useEffect(() => {
    if (fill) draft.replace({ form: found.form, again: id, fetched: found.form.inputs.map((input) => input.name) });
  }, [fill, id]);
  if (!id) return { loading: false, notice: null };
  if (job.error) return { loading: false, notice: <Notice tone="bad">{asProblem(job.error).detail}</Notice> };
  if (!job.data) return { loading: true, notice: <Notice>Loading the job…</Notice> };
  const link = (
    <Link href={jobHref(id)} className="underline">
      {job.data.name}
    </Link>
  );
  if (!found) {
    return {
      loading: false,
      notice: <Notice tone="warn">{link} is a pickled function. You can run it again, but not change it here.</Notice>,
    };
  }
  const left = found.left.length > 0 ? ` Not copied: ${found.left.join("; ")}.` : "";
  return {
    loading: false,
    notice: (
      <Notice>
        Filled in from {link}.{left}
      </Notice>
    ),
  };
}
