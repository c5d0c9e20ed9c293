"use client";
// One effect for one form, however often its button is pressed or an answer is lost: the hub remembers the key.
import { useRef } from "react";

/** randomUUID is missing on pages over plain HTTP; random bytes are not. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * `once(body)` are the headers of a POST: the same key for the same words until `done()`, so that a retry after a lost answer does
 * nothing twice; other words, or the next time, get another key.
 */
export function useOnce() {
  const kept = useRef<{ body: string; key: string } | null>(null);
  return {
    once(body: unknown): { "idempotency-key": string } {
      const written = JSON.stringify(body) ?? "";
      if (kept.current?.body !== written) kept.current = { body: written, key: randomKey() };
      return { "idempotency-key": kept.current.key };
    },
    done() {
      kept.current = null;
    },
  };
}
