// The shape of a mark shows the kind of hardware. Its colour shows the tier (tiers.ts).
import type { Schemas } from "@/lib/api/client";

export type MeshNode = Schemas["MeshNode"];

/** Outlines in a square from −1 to 1, of about the same area. */
const OUTLINES: Record<string, string> = {
  processor: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z",
  "desktop card": "M-.88-.88H.88V.88H-.88Z",
  "workstation card": "M0-1.2 1.2 0 0 1.2-1.2 0Z",
  "data centre card": "M0-1.15 1.15.9H-1.15Z",
};
const OTHER = "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z";

export function outlineOf(family: string): string {
  return OUTLINES[family] ?? OTHER;
}
