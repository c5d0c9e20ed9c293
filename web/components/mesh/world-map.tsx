"use client";
// The map of the nodes that are online. Loaded separately from the page.
import { Minus, Plus, RotateCcw } from "lucide-react";
import {
  type KeyboardEvent,
  type PointerEvent,
  type ReactNode,
  type RefObject,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { IconButton } from "@/components/ui/button";
import { retryImport } from "@/lib/retry-import";
import { useTheme } from "@/lib/theme";
import { type Size, useSize } from "@/lib/use-size";
import { drawLand, drawMarks, type Palette, prepare, readPalette } from "./draw";
import type { MeshNode } from "./families";
import { MapTip, wordsOf } from "./map-tip";
import { type Mark, makeMarks, markAt } from "./marks";
import { useMapView } from "./use-map-view";
import { usePulses } from "./use-pulses";
import { fitView, type View } from "./view";
import { type Atlas, loadAtlas, makeWorld, project, type World } from "./world";

interface WorldMapProps {
  nodes: MeshNode[];
  onOpen: (id: string) => void;
  children?: ReactNode; // shown over the map
}

const HELP =
  "Arrow keys move the map, plus and minus zoom, 0 shows the whole world, N and P select the next or previous mark, Enter opens it. The table below has the same nodes.";

export function WorldMap({ nodes, onOpen, children }: WorldMapProps) {
  const place = useRef<HTMLDivElement>(null);
  const layers = { land: useRef<HTMLCanvasElement>(null), nodes: useRef<HTMLCanvasElement>(null) };
  const pulses = useRef<HTMLCanvasElement>(null);
  const measured = useSize(place);
  const size = measured.width > 0 ? measured : null;
  const palette = usePalette();
  const map = useMapView(place, size);
  const [chosenId, setChosenId] = useState(""); // of the mark's first node: marks are made anew with every view
  const [said, setSaid] = useState("");
  const marks = useMarks(nodes, { size, view: map.view });
  const chosen = chosenId ? marks.made.findIndex((mark) => idOf(mark, nodes) === chosenId) : -1;
  useDrawing({ nodes, marks, palette, view: map.view, chosen, layers });
  usePulses(nodes, { canvas: pulses, marks: marks.made, size, palette });
  const choose = (index: number) => setChosenId(idOf(marks.made[index], nodes));

  const open = (mark: Mark | undefined) => {
    const node = mark && nodes[mark.nodes[0] as number];
    if (!node || !size) return;
    if (mark.tiers.length > 0) map.glide(fitView(size, mark.box));
    else onOpen(node.id);
  };
  const at = (event: { clientX: number; clientY: number }) => {
    const frame = place.current?.getBoundingClientRect();
    return frame ? markAt(marks.made, event.clientX - frame.left, event.clientY - frame.top) : -1;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { n: 1, N: 1, p: -1, P: -1 }[event.key];
    if (step !== undefined && marks.made.length > 0 && !event.ctrlKey && !event.metaKey) {
      const next = (chosen + step + marks.made.length) % marks.made.length;
      choose(next);
      setSaid(wordsOf(marks.made[next] as Mark, nodes));
    } else if (event.key === "Enter") open(marks.made[chosen]);
    else if (event.key === "Escape") setChosenId("");
    else if (!map.onKey(event)) return;
    event.preventDefault();
  };
  const mark = marks.made[chosen];
  return (
    <div className="relative">
      <div
        ref={place}
        role="application"
        tabIndex={0}
        aria-label="World map of the nodes that are online"
        aria-describedby="mesh-map-help"
        className={`-outline-offset-2 relative aspect-[2.05] max-h-[48rem] min-h-52 w-full overflow-hidden ${map.view.k > 1 ? "touch-none" : "touch-pan-y"} ${mark ? "cursor-pointer" : "cursor-grab active:cursor-grabbing"}`}
        onKeyDown={onKeyDown}
        onBlur={() => setChosenId("")}
        onClick={(event) => !map.pointers.wasDrag() && open(marks.made[at(event)])}
        {...map.pointers.handlers}
        onPointerMove={(event: PointerEvent<HTMLElement>) => {
          map.pointers.handlers.onPointerMove(event);
          if (event.pointerType === "mouse" && event.buttons === 0) choose(at(event));
        }}
        onPointerLeave={() => setChosenId("")}
      >
        {[layers.land, layers.nodes, pulses].map((layer, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the layers stay in their places
          <canvas key={index} ref={layer} className="pointer-events-none absolute inset-0 size-full" />
        ))}
      </div>
      {mark && size && <MapTip mark={mark} nodes={nodes} size={size} />}
      <div className="absolute bottom-3 left-3 flex rounded-control border border-line bg-surface/90">
        <IconButton label="Zoom in" onClick={map.closer}>
          <Plus />
        </IconButton>
        <IconButton label="Zoom out" onClick={map.farther} disabled={map.view.k === 1}>
          <Minus />
        </IconButton>
        <IconButton label="Show the whole world" onClick={map.whole} disabled={map.view.k === 1}>
          <RotateCcw />
        </IconButton>
      </div>
      <p id="mesh-map-help" className="sr-only">
        {HELP}
      </p>
      <p aria-live="polite" className="sr-only">
        {said}
      </p>
      {children && (
        <div className="pointer-events-none absolute inset-0 grid place-items-center p-4 [&>*]:pointer-events-auto">
          {children}
        </div>
      )}
    </div>
  );
}

function idOf(mark: Mark | undefined, nodes: MeshNode[]): string {
  return (mark && nodes[mark.nodes[0] as number]?.id) ?? "";
}

interface Marks {
  world: World | null;
  made: Mark[];
  tookMs: number;
}

function useMarks(nodes: MeshNode[], { size, view }: { size: Size | null; view: View }): Marks {
  const [atlas, setAtlas] = useState<Atlas | null>(); // null: not available, so only the nodes are drawn
  useEffect(() => {
    const load = () => loadAtlas().then(setAtlas);
    load().catch(() => {
      setAtlas(null);
      retryImport(load).catch(() => {});
    });
  }, []);
  const world = useMemo(() => (size && atlas !== undefined ? makeWorld(size.width, size.height, atlas) : null), [size, atlas]);
  const spots = useMemo(() => measure(() => (world ? project(world, nodes) : new Float32Array())), [world, nodes]);
  return useMemo(() => {
    const marks = measure(() => (world ? makeMarks(nodes, spots.made, { view, size: world }) : []));
    return { world, made: marks.made, tookMs: marks.tookMs + spots.tookMs };
  }, [world, nodes, spots, view]);
}

function measure<T>(make: () => T): { made: T; tookMs: number } {
  const begin = performance.now();
  const made = make();
  return { made, tookMs: performance.now() - begin };
}

interface Scene {
  nodes: MeshNode[];
  marks: Marks;
  palette: Palette | null;
  view: View;
  chosen: number;
  layers: { land: RefObject<HTMLCanvasElement | null>; nodes: RefObject<HTMLCanvasElement | null> };
}

/** Records the time of each drawing as the performance measure "mesh-draw". */
function useDrawing({ nodes, marks, palette, view, chosen, layers }: Scene): void {
  const drawn = useRef<unknown[]>([]);
  useLayoutEffect(() => {
    const { world, made } = marks;
    if (!world || !palette || !layers.land.current || !layers.nodes.current) return;
    const begin = performance.now() - marks.tookMs;
    if (!same(drawn.current, [world, palette, view])) {
      drawn.current = [world, palette, view];
      const context = prepare(layers.land.current, world);
      if (context) drawLand(context, world, { view, palette });
    }
    const context = prepare(layers.nodes.current, world);
    if (context) drawMarks(context, { marks: made, nodes, palette, chosen });
    performance.clearMeasures("mesh-draw");
    performance.measure("mesh-draw", { start: begin, detail: { nodes: nodes.length, marks: made.length } });
  }, [marks, palette, view, nodes, chosen, layers.land, layers.nodes]);
}

function same(one: unknown[], other: unknown[]): boolean {
  return one.length === other.length && one.every((value, index) => value === other[index]);
}

function usePalette(): Palette | null {
  const theme = useTheme();
  const [palette, setPalette] = useState<Palette | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a theme has its own colours
  useEffect(() => setPalette(readPalette()), [theme]);
  return palette;
}
