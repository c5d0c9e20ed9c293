// SHA-256 of a file. The browser's own function needs HTTPS and the whole file in memory; otherwise it is computed in pieces.
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex } from "@noble/hashes/utils.js";

const IN_MEMORY_MAX = 32 * 1024 * 1024;
const PIECE = 4 * 1024 * 1024;

export async function fileDigest(file: Blob, onProgress: (done: number) => void, signal: AbortSignal): Promise<string> {
  if (globalThis.crypto?.subtle && file.size <= IN_MEMORY_MAX) {
    return bytesToHex(new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer())));
  }
  const hash = sha256.create();
  for (let at = 0; at < file.size; at += PIECE) {
    signal.throwIfAborted();
    // Reading is asynchronous, so the page stays responsive.
    hash.update(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer()));
    onProgress(Math.min(at + PIECE, file.size));
  }
  return bytesToHex(hash.digest());
}
