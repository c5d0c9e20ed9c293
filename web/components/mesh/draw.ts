// Draws the map on two canvases: the land, which changes with the view, and the nodes above it.
import { colour } from "@/lib/theme";
import type { Size } from "@/lib/use-size";
import { type MeshNode, outlineOf } from "./families";
import type { Mark } from "./marks";
import { TIER_COLOURS, tierColour } from "./tiers";
import type { View } from "./view";
import type { World } from "./world";

export interface Palette {
  land: string;
  line: string;
  surface: string;
  ink: string;
  tiers: string[]; // by the place of a tier's colour
}

/** Read once per theme: reading a style for every dot would cost more than drawing it. */
export function readPalette(): Palette {
  return {
    land: colour("land"),
    line: colour("sea"),
    surface: colour("surface"),
    ink: colour("ink"),
    tiers: TIER_COLOURS.map((number) => colour(`series-${number}`)),
  };
}

const RING = 4.5;
const shapes = new Map<string, Path2D>();

function shapeOf(family: string): Path2D {
  const known = shapes.get(family) ?? new Path2D(outlineOf(family));
  shapes.set(family, known);
  return known;
}

/** The canvas in the screen's own pixels, empty, with coordinates in CSS pixels. */
export function prepare(canvas: HTMLCanvasElement, size: Size): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, size.width, size.height);
  return context;
}

export function drawLand(context: CanvasRenderingContext2D, world: World, { view, palette }: { view: View; palette: Palette }) {
  context.save();
  context.translate(view.x, view.y);
  context.scale(view.k, view.k);
  context.fillStyle = palette.land;
  context.fill(world.land);
  context.strokeStyle = palette.line;
  context.lineWidth = 0.8 / view.k;
  context.stroke(world.borders);
  context.restore();
}

interface Scene {
  marks: Mark[];
  nodes: MeshNode[];
  palette: Palette;
  chosen: number; // of the marks; −1: none
}

export function drawMarks(context: CanvasRenderingContext2D, { marks, nodes, palette, chosen }: Scene) {
  context.lineJoin = "round";
  for (const mark of marks) {
    if (mark.tiers.length === 0) drawDot(context, { mark, node: nodes[mark.nodes[0] as number] as MeshNode, palette });
  }
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const mark of marks) {
    if (mark.tiers.length > 0) drawCluster(context, mark, palette);
  }
  const mark = marks[chosen];
  if (mark) ring(context, mark, { colour: palette.ink, gap: 4, width: 2 });
}

interface Dot {
  mark: Mark;
  node: MeshNode;
  palette: Palette;
}

/** Hollow: takes no new jobs. Ring: jobs run there. Strong edge: one's own node. */
function drawDot(context: CanvasRenderingContext2D, { mark, node, palette }: Dot) {
  const outline = shapeOf(node.family);
  const own = palette.tiers[tierColour(node.tier)] as string;
  context.save();
  context.translate(mark.x, mark.y);
  context.scale(mark.radius, mark.radius);
  context.fillStyle = node.takes_work ? own : palette.surface;
  context.fill(outline);
  context.strokeStyle = node.mine ? palette.ink : node.takes_work ? palette.surface : own;
  context.lineWidth = (node.mine ? 2 : node.takes_work ? 1 : 1.8) / mark.radius;
  context.stroke(outline);
  context.restore();
  if (node.running > 0) ring(context, mark, { colour: own, gap: 3, width: 1.5 });
}

/** A number in a ring that shows the share of each tier. */
function drawCluster(context: CanvasRenderingContext2D, mark: Mark, palette: Palette) {
  const { x, y, radius } = mark;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = palette.surface;
  context.fill();
  let from = -Math.PI / 2;
  context.lineWidth = RING;
  for (const { name, count } of mark.tiers) {
    const to = from + (count / mark.nodes.length) * 2 * Math.PI;
    context.beginPath();
    context.arc(x, y, radius - RING / 2, from, to);
    context.strokeStyle = palette.tiers[tierColour(name)] as string;
    context.stroke();
    from = to;
  }
  context.fillStyle = palette.ink;
  context.font = `600 ${mark.nodes.length > 999 ? 11 : 12}px ui-sans-serif, system-ui, sans-serif`;
  context.fillText(mark.nodes.length.toString(), x, y + 0.5);
}

function ring(
  context: CanvasRenderingContext2D,
  mark: Mark,
  look: { colour: string; gap: number; width: number; fade?: number },
) {
  context.globalAlpha = look.fade ?? 1;
  context.beginPath();
  context.arc(mark.x, mark.y, mark.radius + look.gap, 0, 2 * Math.PI);
  context.strokeStyle = look.colour;
  context.lineWidth = look.width;
  context.stroke();
  context.globalAlpha = 1;
}

/** A ring that grows and fades; `age` from 0 to 1. */
export function drawPulse(context: CanvasRenderingContext2D, mark: Mark, look: { colour: string; age: number }) {
  ring(context, mark, { colour: look.colour, gap: 2 + 16 * look.age, width: 2, fade: 1 - look.age });
}
