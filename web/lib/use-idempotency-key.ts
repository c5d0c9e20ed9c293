"use client";
// One effect for one form, however often its button is pressed or an answer is lost: the hub remembers the key.
import { useRef } from "react";

/** randomUUID is missing on pages over plain HTTP; random bytes are not. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * `headers(body)` are the headers of a POST: the same key for the same body until `reset()`, so that a retry after a lost answer
 * does nothing twice; another body, or the next time, gets another key.
 */
export function useIdempotencyKey() {
  const last = useRef<{ body: string; key: string } | null>(null);
  return {
    headers(body: unknown): { "idempotency-key": string } {
      const serialized = JSON.stringify(body) ?? "";
      if (last.current?.body !== serialized) last.current = { body: serialized, key: randomKey() };
      return { "idempotency-key": last.current.key };
    },
    reset() {
      last.current = null;
    },
  };
}
