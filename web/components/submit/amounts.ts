// Sizes, times and amounts as the command line takes them: 16, "16GB", "512MB"; 90, "10m", "2h"; "2.5".

const MB: Record<string, number> = {
  "": 1000,
  b: 1e-6,
  kb: 1e-3,
  mb: 1,
  m: 1,
  gb: 1000,
  g: 1000,
  tb: 1e6,
  t: 1e6,
  kib: 1 / 1024,
  mib: 1,
  gib: 1024,
  tib: 1024 ** 2,
};
const SECONDS: Record<string, number> = { "": 1, s: 1, m: 60, min: 60, h: 3600, d: 86_400 };

function parseAmount(text: string, units: Record<string, number>): number | null {
  const match = /^\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*$/.exec(text);
  const factor = match ? units[(match[2] ?? "").toLowerCase()] : undefined;
  return match && factor !== undefined ? Number(match[1]) * factor : null;
}

/** Whole MB, rounded up; without a unit it is in GB. */
export function parseMegabytes(text: string): number | null {
  const size = parseAmount(text, MB);
  return size === null ? null : Math.ceil(Number(size.toFixed(6)));
}

export function parseSeconds(text: string): number | null {
  return parseAmount(text, SECONDS);
}

export function sizeText(mb: number): string {
  return mb % 1000 === 0 && mb > 0 ? `${mb / 1000}GB` : `${mb}MB`;
}

export function timeText(seconds: number): string {
  if (seconds % 3600 === 0) return `${seconds / 3600}h`;
  if (seconds % 60 === 0) return `${seconds / 60}m`;
  return `${seconds}`;
}
