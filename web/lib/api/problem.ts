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
  return notTheHub(0);
}

/** A proxy's answer, or none in JSON. */
export function notTheHub(status: number): Problem {
  return {
    ...UNREACHABLE,
    status,
    title: "The hub could not be understood",
    detail: "Something between this page and the hub answered instead of it.",
  };
}

/** Worth another try without a person doing anything. */
export function isPassing(problem: Problem): boolean {
  return problem.status === 0 || problem.status === 429 || problem.status >= 500;
}

export function isSignedOut(error: unknown): boolean {
  return asProblem(error).status === 401;
}
