/**
 * Where things are drawn. Places follow from names alone, and whatever has been seen once keeps its place while
 * time moves: a node that is not there yet, or no more, leaves a gap.
 */
import type { Counts, MapNode, MapVolume, VolumeMap } from "../api";

export type Size = "large" | "medium" | "small";

export interface Segment {
  /** Share of the cell's width, from 0 to 1. */
  from: number;
  to: number;
  state: string;
  volume: MapVolume | null;
}

export interface Cell {
  id: string;
  label: string;
  kind: "node" | "shared" | "unreached";
  node: MapNode | null;
  path: string[];
  segments: Segment[];
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Box {
  path: string[];
  label: string;
  depth: number;
  x: number;
  y: number;
  w: number;
  h: number;
  labelHeight: number;
}

export interface Layout {
  cells: Cell[];
  boxes: Box[];
  height: number;
}

interface Measure {
  w: number;
  h: number;
  gap: number;
}

const CELL: Record<Size, Measure> = {
  large: { w: 172, h: 48, gap: 6 },
  medium: { w: 92, h: 27, gap: 4 },
  small: { w: 13, h: 13, gap: 2 },
};
/** Where there are few nodes there is room for the names of their volumes. */
const FEW = { nodes: 40, w: 268, h: 54 };
const PAD = 8;
const LABEL = 22;
export const STATES = ["bound", "assumed", "free", "released", "unknown", "lost"];

export function sizeFor(nodes: number): Size {
  return nodes <= 150 ? "large" : nodes <= 900 ? "medium" : "small";
}

/** Every node that was ever in the picture, by name. */
export type Known = Map<string, string[]>;

export function remember(known: Known, map: VolumeMap): Known {
  for (const node of map.nodes ?? []) known.set(node.name, node.path);
  return known;
}

interface Group {
  path: string[];
  children: Map<string, Group>;
  cells: Cell[];
}

export function layOut(map: VolumeMap, known: Known, width: number, size: Size): Layout {
  const root: Group = { path: [], children: new Map(), cells: [] };
  const nodes = new Map((map.nodes ?? []).map((it) => [it.name, it]));
  const byNode = new Map<string, MapVolume[]>();
  const shared = new Map<string, MapVolume[]>();
  const unreached: MapVolume[] = [];
  for (const it of map.volumes ?? []) {
    if (!it.reached) unreached.push(it);
    else push(it.node === null ? shared : byNode, it.node ?? it.path.join("/"), it);
  }
  for (const name of [...known.keys()].sort(byName)) {
    const node = nodes.get(name) ?? null;
    const path = node?.path ?? known.get(name)!;
    const volumes = byNode.get(name);
    const segments = volumes || map.volumes ? ofVolumes(volumes ?? []) : ofCounts(node?.states ?? {});
    groupAt(root, path).cells.push(cell(`node/${name}`, name, "node", path, segments, node));
  }
  if (map.nodes === null) addCounted(root, map);
  for (const group of map.groups) {
    const own = shared.get(group.path.join("/"));
    const segments = own ? ofVolumes(own) : map.volumes === null ? ofCounts(group.own) : [];
    if (segments.length > 0 && (own || group.path.length > 0)) {
      const label = group.path.length ? `any node of ${group.path.at(-1)}` : "any node";
      groupAt(root, group.path).cells.push(cell(`shared/${group.path.join("/")}`, label, "shared", group.path, segments));
    }
  }
  if (unreached.length > 0) {
    root.cells.push(cell("unreached", "out of reach", "unreached", [], ofVolumes(unreached)));
  }
  const layout: Layout = { cells: [], boxes: [], height: 0 };
  const few = size === "large" && known.size <= FEW.nodes && width > 2 * FEW.w;
  const measure = few ? { ...CELL.large, w: FEW.w, h: FEW.h } : CELL[size];
  const box = place(root, 0, 0, Math.max(width, 240), measure, layout);
  layout.height = box.h;
  return layout;
}

/** Too many nodes to list: one cell stands for a group's nodes. */
function addCounted(root: Group, map: VolumeMap): void {
  const deepest = Math.max(...map.groups.map((it) => it.path.length));
  for (const it of map.groups) {
    if (it.path.length !== deepest) continue;
    groupAt(root, it.path).cells.push(cell(`group/${it.path.join("/")}`, `${it.nodes} nodes`, "node", it.path, ofCounts(it.states)));
  }
}

function cell(id: string, label: string, kind: Cell["kind"], path: string[], segments: Segment[], node: MapNode | null = null): Cell {
  return { id, label, kind, node, path, segments, x: 0, y: 0, w: 0, h: 0 };
}

function groupAt(root: Group, path: string[]): Group {
  let here = root;
  path.forEach((name, depth) => {
    let next = here.children.get(name);
    if (!next) here.children.set(name, (next = { path: path.slice(0, depth + 1), children: new Map(), cells: [] }));
    here = next;
  });
  return here;
}

export function ofVolumes(volumes: MapVolume[]): Segment[] {
  const sorted = [...volumes].sort((a, b) => byName(a.name, b.name));
  // Sized by capacity, and none too small to be seen.
  const least = sorted.reduce((sum, it) => sum + it.bytes, 0) / Math.max(1, sorted.length * 8);
  return spread(sorted.map((it) => ({ weight: Math.max(it.bytes, least, 1), state: it.state, volume: it })));
}

export function ofCounts(counts: Counts): Segment[] {
  const found = STATES.filter((it) => counts[it]);
  return spread(found.map((it) => ({ weight: Math.max(1, counts[it]!.bytes), state: it, volume: null })));
}

function spread(parts: { weight: number; state: string; volume: MapVolume | null }[]): Segment[] {
  const sum = parts.reduce((total, it) => total + it.weight, 0) || 1;
  let reached = 0;
  return parts.map((it) => {
    const from = reached / sum;
    reached += it.weight;
    return { from, to: reached / sum, state: it.state, volume: it.volume };
  });
}

function place(group: Group, x: number, y: number, width: number, measure: Measure, layout: Layout): { w: number; h: number } {
  const depth = group.path.length;
  const { h, gap } = measure;
  const label = depth > 0 ? LABEL : 0;
  const pad = depth > 0 ? PAD : 0;
  const inner = width - 2 * pad;
  const box: Box = {
    path: group.path, label: group.path.at(-1) ?? "", depth, x, y, w: width, h: 0, labelHeight: label,
  };
  if (depth > 0) layout.boxes.push(box);
  let top = y + label + (depth > 0 ? 2 : 0);
  const columns = Math.max(1, Math.floor((inner + gap) / (measure.w + gap)));
  // What is left over of a row widens its nodes: more of their names fit.
  const filled = (inner + gap) / columns - gap;
  const w = measure.w < 20 ? measure.w : Math.min(filled, measure.w * 2);
  group.cells.forEach((it, i) => {
    Object.assign(it, {
      x: x + pad + (i % columns) * (w + gap), y: top + Math.floor(i / columns) * (h + gap), w, h,
    });
    layout.cells.push(it);
  });
  if (group.cells.length > 0) top += Math.ceil(group.cells.length / columns) * (h + gap) - gap + pad;
  // Leaves stand side by side, as wide as they need to be; groups of groups take the whole width.
  let left = x + pad;
  let tallest = 0;
  const children = [...group.children.values()].sort((a, b) => byName(a.path.at(-1)!, b.path.at(-1)!));
  for (const child of children) {
    const wanted = Math.min(inner, child.children.size > 0 ? inner : preferred(child, measure));
    if (left > x + pad && left + wanted > x + pad + inner + 1) {
      left = x + pad;
      top += tallest + PAD;
      tallest = 0;
    }
    const took = place(child, left, top, wanted, measure, layout);
    left += took.w + PAD;
    tallest = Math.max(tallest, took.h);
  }
  if (children.length > 0) top += tallest + pad;
  box.h = Math.max(top - y, label + h / 2);
  return { w: width, h: box.h };
}

function preferred(group: Group, { w, gap }: Measure): number {
  const least = Math.max(1, Math.ceil(150 / (w + gap)));
  const columns = Math.min(Math.max(least, group.cells.length), Math.max(least, Math.ceil(Math.sqrt(group.cells.length * 1.5))));
  return columns * (w + gap) - gap + 2 * PAD;
}

export function cellAt(layout: Layout, x: number, y: number): { cell: Cell; segment: Segment | null } | null {
  for (const it of layout.cells) {
    if (x < it.x || x >= it.x + it.w || y < it.y || y >= it.y + it.h) continue;
    const share = (x - it.x) / it.w;
    const isBar = it.h < 20 || y > it.y + it.h * 0.45;
    return { cell: it, segment: isBar ? it.segments.find((one) => share >= one.from && share < one.to) ?? null : null };
  }
  return null;
}

export function boxAt(layout: Layout, x: number, y: number): Box | null {
  return layout.boxes.findLast((it) =>
    x >= it.x && x < it.x + it.w && y >= it.y && y < it.y + it.labelHeight) ?? null;
}

function push<T>(found: Map<string, T[]>, key: string, value: T): void {
  const list = found.get(key);
  if (list) list.push(value);
  else found.set(key, [value]);
}

const order = new Intl.Collator("en", { numeric: true });
export const byName = (a: string, b: string) => order.compare(a, b);
