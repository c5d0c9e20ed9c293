"use client";
import { Suspense } from "react";
import { SubmitForm } from "@/components/submit/submit-form";
import { Page } from "@/components/ui/page";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { useRole } from "@/lib/session";

export default function SubmitPage() {
  const allowed = useRole("submitter");
  return (
    <Page title="Submit a job" note="A script or a command, on a machine of the pool.">
      {allowed ? (
        <Suspense fallback={<SkeletonRows />}>
          <SubmitForm />
        </Suspense>
      ) : (
        <Empty title="Your account may not submit jobs.">
          <p>An administrator can give it the role “submitter”.</p>
        </Empty>
      )}
    </Page>
  );
}
