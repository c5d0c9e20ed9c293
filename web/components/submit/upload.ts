// Uploads a file as an artifact: named by its SHA-256, in parts, resuming after an interruption.
import { answerOf, client } from "@/lib/api/client";
import { asProblem, isTransient } from "@/lib/api/problem";
import { pause } from "@/lib/pause";
import type { InputFile } from "./form";
import { fileDigest } from "./sha256";

const PART = 8 * 1024 * 1024;
const TRIES_MAX = 8;

export interface Step {
  doing: "reading" | "sending";
  done: number;
  of: number;
}

export async function upload(file: File, onProgress: (step: Step) => void, signal: AbortSignal): Promise<InputFile> {
  const digest = await fileDigest(file, (done) => onProgress({ doing: "reading", done, of: file.size }), signal);
  const path = { digest };
  const askState = () => answerOf(client.GET("/artifacts/{digest}/upload", { params: { path }, signal }));
  let state = await retry(askState, signal);
  let failures = 0;
  while (!state.complete) {
    const { offset } = state;
    onProgress({ doing: "sending", done: offset, of: file.size });
    const { data, error } = await client
      .PUT("/artifacts/{digest}", {
        params: { path, query: { size: file.size, offset, name: file.name } },
        // Raw bytes, which the API's description types as a string.
        body: file.slice(offset, offset + PART) as unknown as string,
        bodySerializer: (part: unknown) => part as Blob,
        headers: { "Content-Type": "application/octet-stream" },
        signal,
      })
      .catch((error: unknown) => ({ data: undefined, error }));
    signal.throwIfAborted();
    if (data) {
      state = data;
      failures = 0;
    } else {
      // The connection broke, or another tab uploads the same file: the hub knows how much it has.
      failures += 1;
      if (failures > TRIES_MAX || !(isTransient(asProblem(error)) || asProblem(error).status === 409)) throw error;
      await backOff(failures, signal);
      state = await retry(askState, signal);
    }
  }
  return { name: file.name, digest, size: file.size };
}

async function retry<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await ask();
    } catch (error) {
      signal.throwIfAborted();
      if (failures >= TRIES_MAX || !isTransient(asProblem(error))) throw error;
      await backOff(failures, signal);
    }
  }
}

function backOff(failures: number, signal: AbortSignal): Promise<void> {
  return pause(Math.min(500 * 2 ** failures, 10_000), signal).then(() => signal.throwIfAborted());
}
