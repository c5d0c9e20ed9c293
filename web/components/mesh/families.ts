// How each kind of hardware looks on the map: a colour and a shape, so that nobody needs the colour.
import type { Schemas } from "@/lib/api/client";

export type MeshNode = Schemas["MeshNode"];
export type Shape = "circle" | "square" | "diamond" | "triangle" | "cross";

export interface Family {
  name: string; // the API's word
  colour: string; // a token of app/globals.css
  shape: Shape;
}

export const FAMILIES: Family[] = [
  { name: "processor", colour: "series-1", shape: "circle" },
  { name: "desktop card", colour: "series-2", shape: "square" },
  { name: "workstation card", colour: "series-3", shape: "diamond" },
  { name: "data centre card", colour: "series-4", shape: "triangle" },
  { name: "other card", colour: "series-5", shape: "cross" },
];

const NUMBERS = new Map(FAMILIES.map((family, index) => [family.name, index]));

/** Its place in the list above; a kind that is not there is shown as the last one. */
export function familyOf(name: string): number {
  return NUMBERS.get(name) ?? FAMILIES.length - 1;
}

export function familyNamed(name: string): Family {
  return FAMILIES[familyOf(name)] as Family;
}

/** Outlines in a square from −1 to 1, of about the same area. */
export const OUTLINES: Record<Shape, string> = {
  circle: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z",
  square: "M-.88-.88H.88V.88H-.88Z",
  diamond: "M0-1.2 1.2 0 0 1.2-1.2 0Z",
  triangle: "M0-1.15 1.15.9H-1.15Z",
  cross: "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
};
