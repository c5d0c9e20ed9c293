// What went wrong, in the hub's own words if possible.
import type { Schemas } from "./client";

export type Problem = Schemas["Problem"];

const UNREACHABLE: Problem = {
  type: "about:blank",
  title: "The hub does not answer",
  status: 0,
  code: "unreachable",
  detail: "The connection failed. This page keeps retrying.",
  field: null,
  retry_after_s: null,
};

export function asProblem(error: unknown): Problem {
  if (error instanceof TypeError || error === undefined || error === null) return UNREACHABLE;
  if (typeof error === "object" && "code" in error && "detail" in error) return error as Problem;
  return proxyProblem(0);
}

/** An answer that is not the hub's JSON, such as a proxy's. */
export function proxyProblem(status: number): Problem {
  return {
    ...UNREACHABLE,
    status,
    title: "Unexpected answer",
    detail: "A proxy between this page and the hub answered instead of it.",
  };
}

/** Worth retrying automatically. */
export function isTransient(problem: Problem): boolean {
  return problem.status === 0 || problem.status === 429 || problem.status >= 500;
}

/** A query that is retried for as long as the page is open. */
export interface QueryStatus {
  error: unknown;
  failureCount?: number;
  failureReason?: unknown;
}

const FAILURES_BEFORE_SHOWN = 3; // fewer may be a restart of the hub

/** What to show instead of an answer: a refusal, or the reason for repeated failures. */
export function errorToShow({ error, failureCount = 0, failureReason }: QueryStatus): unknown {
  return error ?? (failureCount >= FAILURES_BEFORE_SHOWN ? failureReason : null);
}

export function isSignedOut(error: unknown): boolean {
  return asProblem(error).status === 401;
}
