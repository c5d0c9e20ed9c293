// Projects land and borders of the world to paths of whole numbers, so that browsers need neither the projection library
// nor the larger original data. Run it after an update of world-atlas: npm run atlas
import { readFileSync, writeFileSync } from "node:fs";
import { geoNaturalEarth1, geoPath } from "d3-geo";
import { feature, mesh } from "topojson-client";

const UNIT = 500; // per radian at the equator, as in components/mesh/world.ts
const SOUTH_EDGE = -60; // of the visible map

const world = JSON.parse(readFileSync(new URL("../node_modules/world-atlas/countries-110m.json", import.meta.url), "utf8"));
const { land, countries } = world.objects;
const project = geoPath(geoNaturalEarth1().scale(UNIT).translate([0, 0])).digits(0);

/** In relative steps: short numbers, which compress well. */
function relative(path) {
  let [drawn, last] = ["", ""];
  let [x, y] = [0, 0];
  let start = [0, 0];
  for (const [, command, right, down] of path.matchAll(/([MLZ])(?:(-?\d+),(-?\d+))?/g)) {
    if (command === "Z") {
      drawn += "z";
      [x, y] = start; // where SVG's next relative step begins
    } else {
      const [dx, dy] = [right - x, down - y];
      if (command === "L" && dx === 0 && dy === 0) continue;
      const letter = command === "M" ? "m" : last === "L" ? (dx < 0 ? "" : " ") : "l";
      drawn += `${letter}${dx}${dy < 0 ? "" : " "}${dy}`;
      [x, y] = [x + dx, y + dy];
      if (command === "M") start = [x, y];
    }
    last = command;
  }
  return drawn;
}

function visible(polygons) {
  return polygons.filter((polygon) => Math.max(...polygon[0].map(([, latitude]) => latitude)) > SOUTH_EDGE);
}

const [earth, ...more] = feature(world, land).features;
if (!earth || more.length > 0) throw new Error("the land is expected to be one shape");
const shape = { ...earth.geometry, coordinates: visible(earth.geometry.coordinates) };
const drawn = {
  land: relative(project(shape)),
  borders: relative(project(mesh(world, countries, (one, other) => one !== other))),
};
writeFileSync(new URL("../components/mesh/atlas.json", import.meta.url), `${JSON.stringify(drawn, null, 2)}\n`);
