// The only way to the hub: typed by its API description, on the page's own origin and under the hub's path prefix.
import createFetchClient from "openapi-fetch";
import createQueryClient from "openapi-react-query";
import { proxyProblem } from "./problem";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** Empty, or the path under which a proxy serves the hub. */
export const BASE_PATH = process.env.NEXT_PUBLIC_BASE_PATH ?? "";

const API = `${BASE_PATH}/api/v1`;

/** The address of something at the hub that is not JSON: a file, a CSV, a stream. */
export function hubUrl(parts: string[], query: Record<string, string | number | undefined> = {}): string {
  const path = parts.map(encodeURIComponent).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) search.set(name, String(value));
  }
  return `${API}/${path}${search.size > 0 ? `?${search}` : ""}`;
}

// The build has no window, and fetch needs an absolute address.
const origin = typeof window === "undefined" ? "http://localhost" : window.location.origin;

export const client = createFetchClient<paths>({
  baseUrl: `${origin}${API}`,
  querySerializer: { array: { style: "form", explode: true } },
});

const KEY = "idempotency-key";
/** The keys of POST requests that the hub has not answered, by address and body. */
const unanswered = new Map<string, string>();

client.use({
  /** Repeating a POST whose answer was lost sends the same key, so that the hub does nothing twice. */
  async onRequest({ request }) {
    if (request.method !== "POST" || request.headers.has(KEY)) return;
    const question = `${request.url} ${await request.clone().text()}`;
    const key = unanswered.get(question) ?? randomKey();
    unanswered.set(question, key);
    request.headers.set(KEY, key);
  },
  onResponse({ request, response }) {
    if (response.status < 500) {
      for (const [question, key] of unanswered) if (key === request.headers.get(KEY)) unanswered.delete(question);
    }
    // A proxy's error page must not look like an answer without content.
    const isReadable = response.status < 400 || response.headers.get("content-type")?.includes("json");
    return isReadable ? undefined : Response.json(proxyProblem(response.status), { status: response.status });
  },
});

/** crypto.randomUUID does not exist on pages over plain HTTP. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What the hub answered; throws its refusal. */
export async function answerOf<T>(answer: Promise<{ data?: T; error?: unknown }>): Promise<T> {
  const { data, error } = await answer;
  if (error !== undefined) throw error;
  return data as T;
}

/** Hooks: $api.useQuery("get", "/jobs/{job_id}", {params: {path: {job_id}}}), $api.useMutation("post", …). */
export const $api = createQueryClient(client);
