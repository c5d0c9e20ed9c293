import { expect, it } from "vitest";
import { asProblem, errorToShow, isSignedOut, isTransient, proxyProblem } from "@/lib/api/problem";

const refusal = {
  type: "about:blank",
  title: "No",
  status: 403,
  code: "forbidden",
  detail: "Ask an administrator.",
  field: null,
};

it("keeps the hub's own words", () => {
  expect(asProblem(refusal)).toBe(refusal);
});

it.each([
  ["a broken connection", new TypeError("Failed to fetch"), "The hub does not answer"],
  ["no answer", undefined, "The hub does not answer"],
  ["a proxy's page", "<html>502</html>", "Unexpected answer"],
  ["a bug", new Error("x"), "Unexpected answer"],
])("explains %s", (_, error, title) => {
  expect(asProblem(error)).toMatchObject({ title, status: 0, code: "unreachable" });
});

it("retries what may pass, and nothing else", () => {
  const statuses = [0, 400, 401, 403, 404, 409, 422, 429, 500, 502, 503];
  expect(statuses.filter((status) => isTransient(proxyProblem(status)))).toEqual([0, 429, 500, 502, 503]);
  expect([isSignedOut({ ...refusal, status: 401 }), isSignedOut(refusal), isSignedOut(new TypeError())]).toEqual([
    true,
    false,
    false,
  ]);
});

it("shows a refusal at once, and a failure only when it lasts longer than a restart", () => {
  expect(errorToShow({ error: refusal })).toBe(refusal);
  expect(errorToShow({ error: null, failureCount: 2, failureReason: "down" })).toBeNull();
  expect(errorToShow({ error: null, failureCount: 3, failureReason: "down" })).toBe("down");
});
