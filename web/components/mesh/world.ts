// Land, borders and places in pixels of a map of a certain size.

export interface World {
  width: number;
  height: number;
  land: Path2D;
  borders: Path2D;
  scale: number; // pixels to a unit of the projection
  left: number; // of where the equator meets the first meridian
  top: number;
}

/** Paths in the projection's own units, times UNIT. */
export interface Atlas {
  land: string;
  borders: string;
}

// Made by `npm run atlas`. A separate file, so that browsers cache it.
const ATLAS = new URL("./atlas.json", import.meta.url);
const UNIT = 500;

export async function loadAtlas(): Promise<Atlas> {
  const answer = await fetch(ATLAS);
  if (!answer.ok) throw new Error(`The hub has no map of the world: ${answer.status}`);
  return answer.json();
}

const MARGIN = 12;
const RADIANS = Math.PI / 180;

/** The Natural Earth projection, by the polynomials of Šavrič, Patterson and Jenny; y points down. */
function natural(lat: number, lon: number): [number, number] {
  const phi = lat * RADIANS;
  const phi2 = phi * phi;
  const phi4 = phi2 * phi2;
  const x = lon * RADIANS * (0.8707 - 0.131979 * phi2 + phi4 * (-0.013791 + phi4 * (0.003971 * phi2 - 0.001529 * phi4)));
  const y = phi * (1.007226 + phi2 * (0.015085 + phi4 * (-0.044475 + 0.028874 * phi2 - 0.005916 * phi4)));
  return [x, -y];
}

/** Without Antarctica, which would take a fifth of the space. */
const SHOWN = { west: natural(0, -172)[0], east: natural(0, 180)[0], north: natural(78, 0)[1], south: natural(-54, 0)[1] };

/** Without an atlas, places can still be drawn. */
export function makeWorld(width: number, height: number, atlas: Atlas | null): World {
  const { west, east, north, south } = SHOWN;
  const scale = Math.min((width - 2 * MARGIN) / (east - west), (height - 2 * MARGIN) / (south - north));
  const left = (width - scale * (west + east)) / 2;
  const top = (height - scale * (north + south)) / 2;
  const drawn = (path: string) => {
    const placed = new Path2D();
    placed.addPath(new Path2D(path), new DOMMatrix([scale / UNIT, 0, 0, scale / UNIT, left, top]));
    return placed;
  };
  return { width, height, scale, left, top, land: drawn(atlas?.land ?? ""), borders: drawn(atlas?.borders ?? "") };
}

/** x and y of each place, in pixels of the whole map; NaN for none. */
export function project({ scale, left, top }: World, places: { lat: number | null; lon: number | null }[]): Float32Array {
  const found = new Float32Array(places.length * 2).fill(Number.NaN);
  for (let index = 0; index < places.length; index++) {
    const { lat, lon } = places[index] as { lat: number | null; lon: number | null };
    if (lat === null || lon === null) continue;
    const [x, y] = natural(lat, lon);
    found[index * 2] = left + scale * x;
    found[index * 2 + 1] = top + scale * y;
  }
  return found;
}
