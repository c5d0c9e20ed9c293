"use client";
// In the place of the page of one thing: there is no such thing, or the hub does not say.
import type { Route } from "next";
import type { ReactNode } from "react";
import { asProblem } from "@/lib/api/problem";
import { ButtonLink } from "./button";
import { Page } from "./page";
import { Empty, Failure } from "./states";

interface MissingPageProps {
  kind: "job" | "group" | "node";
  id: string;
  above: ReactNode;
  error: unknown;
  retry: () => void;
}

export function MissingPage({ kind, id, above, error, retry }: MissingPageProps) {
  const problem = asProblem(error);
  const isWrong = problem.status === 404 || problem.status === 422;
  if (!isWrong) {
    return (
      <Page title={`${kind.charAt(0).toUpperCase()}${kind.slice(1)}`} above={above}>
        <Failure error={error} retry={retry} />
      </Page>
    );
  }
  return (
    <Page title={`No such ${kind}`} above={above}>
      <Empty title={problem.status === 404 ? problem.detail : `This is not the id of a ${kind}.`}>
        <p className="break-all font-mono text-sm">
          <bdi>{id.slice(0, 100)}</bdi>
        </p>
        <p>Check the address, or sign in with an account that can see it.</p>
        <div>
          <ButtonLink href={`/${kind}s` as Route}>All {kind}s</ButtonLink>
        </div>
      </Empty>
    </Page>
  );
}
