// The Earth in pixels: land and borders once for a size of the map, and where a place is on it.
import { type GeoProjection, geoNaturalEarth1, geoNaturalEarth1Raw, geoPath } from "d3-geo";
import type { FeatureCollection, MultiLineString } from "geojson";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";

export interface World {
  width: number;
  height: number;
  land: Path2D;
  borders: Path2D;
  projection: GeoProjection;
}

export interface Atlas {
  land: FeatureCollection;
  borders: MultiLineString;
}

// A file of its own, not a part of the program: it is data, and a browser keeps it.
const ATLAS = new URL("../../node_modules/world-atlas/countries-110m.json", import.meta.url);

export async function loadAtlas(): Promise<Atlas> {
  const answer = await fetch(ATLAS);
  if (!answer.ok) throw new Error(`The hub has no map of the world: ${answer.status}`);
  const topology: Topology<{ land: GeometryCollection; countries: GeometryCollection }> = await answer.json();
  const { land, countries } = topology.objects;
  return { land: feature(topology, land), borders: mesh(topology, countries, (one, other) => one !== other) };
}

const MARGIN = 12;
const RADIANS = Math.PI / 180;
/** Where people live: Antarctica would take a fifth of the room. */
const SHOWN = {
  type: "MultiPoint" as const,
  coordinates: [
    [-172, 0],
    [180, 0],
    [0, 78],
    [0, -54],
  ],
};

/** Without an atlas the places are known all the same, and nodes can be drawn. */
export function makeWorld(width: number, height: number, atlas: Atlas | null): World {
  const projection = geoNaturalEarth1().fitExtent(
    [
      [MARGIN, MARGIN],
      [width - MARGIN, height - MARGIN],
    ],
    SHOWN,
  );
  const path = geoPath(projection).digits(1);
  return {
    width,
    height,
    projection,
    land: new Path2D(atlas ? (path(atlas.land) ?? "") : ""),
    borders: new Path2D(atlas ? (path(atlas.borders) ?? "") : ""),
  };
}

/** x and y of each place, in pixels of the whole map; NaN for none. */
export function project(world: World, places: { lat: number | null; lon: number | null }[]): Float32Array {
  const found = new Float32Array(places.length * 2).fill(Number.NaN);
  // The bare formula: the projection itself also turns and clips, which costs ten times as much for nothing here.
  const scale = world.projection.scale();
  const [left, top] = world.projection.translate();
  for (let index = 0; index < places.length; index++) {
    const { lat, lon } = places[index] as { lat: number | null; lon: number | null };
    if (lat === null || lon === null) continue;
    const [x, y] = geoNaturalEarth1Raw(lon * RADIANS, lat * RADIANS);
    found[index * 2] = left + scale * x;
    found[index * 2 + 1] = top - scale * y;
  }
  return found;
}
