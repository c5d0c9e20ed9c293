// SHA-256 of a file. The browser's own where it has one (a page over plain HTTP has not) and the file fits into memory
// comfortably; else here, piece by piece.

const IN_MEMORY_MAX = 32 * 1024 * 1024;
const PIECE = 4 * 1024 * 1024;

export async function digestOf(file: Blob, seen: (done: number) => void, signal: AbortSignal): Promise<string> {
  if (globalThis.crypto?.subtle && file.size <= IN_MEMORY_MAX) {
    return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer())));
  }
  const hash = new Sha256();
  for (let at = 0; at < file.size; at += PIECE) {
    signal.throwIfAborted();
    // Reading is asynchronous, so the page stays alive between the pieces.
    hash.update(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer()));
    seen(Math.min(at + PIECE, file.size));
  }
  return hex(hash.finish());
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The first 32 bits of the fractional parts of the cube (or square) roots of the first primes. */
function roots(count: number, power: number): Uint32Array {
  const found = new Uint32Array(count);
  for (let candidate = 2, at = 0; at < count; candidate += 1) {
    let prime = true;
    for (let by = 2; by * by <= candidate; by += 1) prime &&= candidate % by !== 0;
    if (prime) {
      const root = candidate ** power;
      found[at] = (root - Math.floor(root)) * 0x1_0000_0000;
      at += 1;
    }
  }
  return found;
}

const K = roots(64, 1 / 3);
const START = roots(8, 1 / 2);

export class Sha256 {
  private readonly state = START.slice();
  private readonly block = new Uint8Array(64);
  private readonly words = new Uint32Array(64);
  private filled = 0;
  private length = 0;

  update(data: Uint8Array): void {
    this.length += data.length;
    let at = 0;
    while (at < data.length) {
      const part = data.subarray(at, at + 64 - this.filled);
      this.block.set(part, this.filled);
      this.filled += part.length;
      at += part.length;
      if (this.filled === 64) this.mix();
    }
  }

  finish(): Uint8Array {
    const bits = this.length * 8;
    this.update(Uint8Array.of(0x80));
    if (this.filled > 56) this.update(new Uint8Array(64 - this.filled));
    this.update(new Uint8Array(56 - this.filled));
    const tail = new DataView(new ArrayBuffer(8));
    tail.setUint32(0, Math.floor(bits / 0x1_0000_0000));
    tail.setUint32(4, bits >>> 0);
    this.update(new Uint8Array(tail.buffer));
    const out = new DataView(new ArrayBuffer(32));
    this.state.forEach((word, index) => {
      out.setUint32(index * 4, word);
    });
    return new Uint8Array(out.buffer);
  }

  private mix(): void {
    const w = this.words;
    const view = new DataView(this.block.buffer);
    for (let i = 0; i < 16; i += 1) w[i] = view.getUint32(i * 4);
    for (let i = 16; i < 64; i += 1) {
      const x = w[i - 15] as number;
      const y = w[i - 2] as number;
      const s0 = turn(x, 7) ^ turn(x, 18) ^ (x >>> 3);
      const s1 = turn(y, 17) ^ turn(y, 19) ^ (y >>> 10);
      w[i] = (w[i - 16] as number) + s0 + (w[i - 7] as number) + s1;
    }
    let [a, b, c, d, e, f, g, h] = this.state as unknown as [number, number, number, number, number, number, number, number];
    for (let i = 0; i < 64; i += 1) {
      const s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + (K[i] as number) + (w[i] as number)) | 0;
      const s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, index) => {
      this.state[index] = (this.state[index] as number) + word;
    });
    this.filled = 0;
  }
}

function turn(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by));
}
