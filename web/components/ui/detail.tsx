"use client";
// What the pages of one job, group or node have in common.
import { ArrowLeft } from "lucide-react";
import type { Route } from "next";
import type { ReactNode } from "react";
import { asProblem, errorToShow } from "@/lib/api/problem";
import { capitalize } from "@/lib/labels";
import { ButtonLink } from "./button";
import { Link } from "./link";
import { Page } from "./page";
import { Empty, Failure, type Query, Skeleton } from "./states";

type Kind = "job" | "group" | "node";

/** To the list of its kind. */
export function Back({ kind }: { kind: Kind }) {
  return (
    <Link
      href={`/${kind}s` as Route}
      className="mb-1 flex w-fit items-center gap-1.5 text-muted text-sm no-underline hover:text-ink"
    >
      <ArrowLeft /> {capitalize(kind)}s
    </Link>
  );
}

interface DetailProps<T> {
  kind: Kind;
  id: string;
  query: Query<T>;
  children: (found: T) => ReactNode;
}

/** The page, its skeleton, or why there is no such thing. */
export function Detail<T>({ kind, id, query, children }: DetailProps<T>) {
  if (query.data !== undefined) return children(query.data);
  const error = errorToShow(query);
  const { status, detail } = asProblem(error);
  const title = capitalize(kind);
  if (!error) {
    return (
      <Page title={title} above={<Back kind={kind} />}>
        <div role="status" aria-label="Loading" className="grid gap-5">
          <Skeleton className="h-24" />
          <Skeleton className="h-[32rem]" />
        </div>
      </Page>
    );
  }
  if (status !== 404 && status !== 422) {
    return (
      <Page title={title} above={<Back kind={kind} />}>
        <Failure error={error} retry={() => void query.refetch()} />
      </Page>
    );
  }
  return (
    <Page title={`No such ${kind}`} above={<Back kind={kind} />}>
      <Empty title={status === 404 ? detail : `This is not the ID of a ${kind}.`}>
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
