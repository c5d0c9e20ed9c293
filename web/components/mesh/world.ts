// The Earth in pixels: land and borders once for a size of the map, and where a place is on it.
import { type GeoProjection, geoNaturalEarth1, geoPath } from "d3-geo";
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

const MARGIN = 6;
/** Where people live: Antarctica would take a fifth of the room. */
const SHOWN = {
  type: "MultiPoint" as const,
  coordinates: [
    [-167, 40],
    [180, 40],
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
  places.forEach(({ lat, lon }, index) => {
    const point = lat === null || lon === null ? null : world.projection([lon, lat]);
    if (point) found.set(point, index * 2);
  });
  return found;
}
