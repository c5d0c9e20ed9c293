// The one door to the hub: typed by its own description, on its own origin, under its own prefix.
import createFetchClient from "openapi-fetch";
import createQueryClient from "openapi-react-query";
import { proxyProblem } from "./problem";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** Empty, or the path under which a proxy shows the hub. */
export const BASE_PATH = process.env.NEXT_PUBLIC_BASE_PATH ?? "";

const API = `${BASE_PATH}/api/v1`;

/** Address of something at the hub that is no JSON: a file, a CSV, a stream. Every part of the path is escaped. */
export function hubUrl(parts: string[], query: Record<string, string | number | undefined> = {}): string {
  const path = parts.map(encodeURIComponent).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) search.set(name, String(value));
  }
  return `${API}/${path}${search.size > 0 ? `?${search}` : ""}`;
}

// An absolute address also where there is no page around it, as in the build.
const origin = typeof window === "undefined" ? "http://localhost" : window.location.origin;

export const client = createFetchClient<paths>({
  baseUrl: `${origin}${API}`,
  // An array is sent as name=a&name=b, as the hub reads it.
  querySerializer: { array: { style: "form", explode: true } },
});

// A refusal without words, as a proxy gives it while the hub is away, must not look like an answer without content.
client.use({
  onResponse({ response }) {
    const told = response.status < 400 || response.headers.get("content-type")?.includes("json");
    return told ? undefined : Response.json(proxyProblem(response.status), { status: response.status });
  },
});

/** Hooks: $api.useQuery("get", "/jobs/{job_id}", {params: {path: {job_id}}}), $api.useMutation("post", …). */
export const $api = createQueryClient(client);
