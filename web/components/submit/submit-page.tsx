"use client";
import { Page } from "@/components/ui/page";
import { Empty } from "@/components/ui/states";
import { useRole } from "@/lib/session";
import { SubmitForm } from "./submit-form";

export function SubmitPage() {
  return (
    <Page title="Submit a job" note="Run a script or a command on a machine of the pool.">
      {useRole("submitter") ? (
        <SubmitForm />
      ) : (
        <Empty title="Your account may not submit jobs.">
          <p>An administrator can give it the role “submitter”.</p>
        </Empty>
      )}
    </Page>
  );
}
