"use client";
import { useSearchParams } from "next/navigation";
import { Suspense } from "react";
import { JobList } from "@/components/jobs/job-list";
import { JobPage } from "@/components/jobs/job-page";
import { PageSkeleton } from "@/components/jobs/job-skeleton";

export default function Jobs() {
  return (
    <Suspense fallback={<PageSkeleton />}>
      <ListOrOne />
    </Suspense>
  );
}

function ListOrOne() {
  const id = useSearchParams().get("id");
  return id ? <JobPage key={id} id={id} /> : <JobList />;
}
