"use client";
import { useParam } from "@/lib/use-params";
import { JobList } from "./job-list";
import { JobPage } from "./job-page";

/** The list, or the one that the address names. */
export function Jobs() {
  const [id] = useParam("id");
  return id ? <JobPage key={id} id={id} /> : <JobList />;
}
