// The Earth in pixels: land and borders once for a size of the map, and where a place is on it.
import { type GeoProjection, geoNaturalEarth1, geoPath } from "d3-geo";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import atlas from "world-atlas/countries-110m.json";

export interface World {
  width: number;
  height: number;
  land: Path2D;
  borders: Path2D;
  projection: GeoProjection;
}

const topology = atlas as unknown as Topology<{ land: GeometryCollection; countries: GeometryCollection }>;
const LAND = feature(topology, topology.objects.land);
const BORDERS = mesh(topology, topology.objects.countries, (one, other) => one !== other);
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

export function makeWorld(width: number, height: number): World {
  const projection = geoNaturalEarth1().fitExtent(
    [
      [MARGIN, MARGIN],
      [width - MARGIN, height - MARGIN],
    ],
    SHOWN,
  );
  const path = geoPath(projection).digits(1);
  return { width, height, projection, land: new Path2D(path(LAND) ?? ""), borders: new Path2D(path(BORDERS) ?? "") };
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
