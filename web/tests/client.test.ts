import { expect, it } from "vitest";
import { answerOf, client, hubUrl } from "@/lib/api/client";

it("repeats a POST with the same key until the hub has answered it", async () => {
  const statuses = [502, 200, 200, 422, 200];
  const keys: (string | null)[] = [];
  const fetch = async (request: Request) => {
    keys.push(request.headers.get("idempotency-key"));
    return Response.json({}, { status: statuses.shift() ?? 200 });
  };
  for (const name of ["ci", "ci", "ci", "other", "ci"]) await client.POST("/keys", { body: { name }, fetch });
  expect(keys[1]).toBe(keys[0]);
  expect(new Set(keys).size).toBe(4);
  await client.GET("/me", { fetch });
  expect(keys.at(-1)).toBeNull();
});

it("throws what the hub or a proxy refuses", async () => {
  const proxy = async () => new Response("<html>", { status: 502 });
  const hub = async () => Response.json({ code: "forbidden" }, { status: 403 });
  await expect(answerOf(client.GET("/me", { fetch: proxy }))).rejects.toMatchObject({ status: 502, code: "unreachable" });
  await expect(answerOf(client.GET("/me", { fetch: hub }))).rejects.toEqual({ code: "forbidden" });
});

it("escapes addresses", () => {
  expect(hubUrl(["jobs", "a/b", "receipt"], { q: "x y", none: undefined })).toBe("/api/v1/jobs/a%2Fb/receipt?q=x+y");
});
