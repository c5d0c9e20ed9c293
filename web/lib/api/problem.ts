// What went wrong, in the hub's own words where it has some.
import type { Schemas } from "./client";

export type Problem = Schemas["Problem"];

const UNREACHABLE: Problem = {
  type: "about:blank",
  title: "The hub does not answer",
  status: 0,
  code: "unreachable",
  detail: "The connection failed. This page tries again by itself.",
  field: null,
  retry_after_s: null,
};

export function asProblem(error: unknown): Problem {
  if (error instanceof TypeError || error === undefined || error === null) return UNREACHABLE;
  if (typeof error === "object" && "code" in error && "detail" in error) return error as Problem;
  return proxyProblem(0);
}

/** A proxy's answer, or none in JSON. */
export function proxyProblem(status: number): Problem {
  return {
    ...UNREACHABLE,
    status,
    title: "The hub could not be understood",
    detail: "Something between this page and the hub answered instead of it.",
  };
}

/** Worth another try without a person doing anything. */
export function isTransient(problem: Problem): boolean {
  return problem.status === 0 || problem.status === 429 || problem.status >= 500;
}

/** A question to the hub, which is asked again for as long as somebody looks. */
export interface QueryStatus {
  error: unknown;
  failureCount?: number;
  failureReason?: unknown;
}

const FAILURES_BEFORE_SHOWN = 3; // failures that pass for a restart of the hub

/** What to show of a question without an answer: its refusal, or why it fails again and again. */
export function errorToShow({ error, failureCount = 0, failureReason }: QueryStatus): unknown {
  return error ?? (failureCount >= FAILURES_BEFORE_SHOWN ? failureReason : null);
}

export function isSignedOut(error: unknown): boolean {
  return asProblem(error).status === 401;
}
