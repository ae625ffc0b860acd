/**
 * Where things are drawn. Places follow from names alone, and whatever has been seen once keeps its place while
 * time moves: a node that is not there yet, or no more, leaves a gap.
 */
import type { Counts, MapNode, MapVolume, VolumeMap } from "../api";
import { tellApart, type Told } from "./names";

export type Size = "large" | "medium" | "small";

export interface Segment {
  /** Share of the bar's width, from 0 to 1. */
  from: number;
  to: number;
  /** Of the bar's lines. */
  line: number;
  state: string;
  /** What tells the volume, and its claim, apart from the others of its node. */
  short: string;
  claimShort: string;
  /** Null: counted, or a gap. */
  volume: MapVolume | null;
}

/** In place of a state: the volume is not there at this moment. */
export const GAP = "gap";

export interface Cell {
  id: string;
  label: string;
  /** What tells it apart from the others of its group. */
  short: string;
  kind: "node" | "shared" | "unreached";
  node: MapNode | null;
  states: Counts;
  path: string[];
  /** Pods that use its volumes. */
  pods: string[];
  segments: Segment[];
  lines: number;
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
  /** What the names of its nodes have in common, where they are too long to be written whole. */
  shared: Told | null;
}

export interface Layout {
  cells: Cell[];
  boxes: Box[];
  height: number;
  /** Of a line of volumes; 0 where a bar fills what the name leaves. */
  lineHeight: number;
}

interface Measure {
  w: number;
  h: number;
  gap: number;
}

interface Drawn extends Measure {
  size: Size;
  lineHeight: number;
}

const CELL: Record<Size, Measure> = {
  large: { w: 172, h: 27, gap: 6 },
  medium: { w: 92, h: 27, gap: 4 },
  small: { w: 26, h: 22, gap: 3 },
};
/** Where there are few nodes there is room for the names of their volumes, and of the claims on them. */
const FEW = { nodes: 40, w: 268 };
/** A line of volumes, with the names of volumes alone or with those of the claims below them. */
const LINE = { names: 21, claims: 33 };
export const HEAD = 21;
/** Of a letter, in the type of volumes and of the smallest nodes. */
const LETTER = { volume: 7, small: 6.5 };
const WIDEST = { volume: 0.5, small: 84 };
const PAD = 8;
/** Of a bar in its cell. */
export const INSET = 4;
const LABEL = 22;
export const STATES = ["bound", "assumed", "free", "released", "unknown", "lost"];

export function sizeFor(nodes: number): Size {
  return nodes <= 150 ? "large" : nodes <= 900 ? "medium" : "small";
}

/** Whatever was ever in the picture, and the most lines that its volumes took: it keeps its place. */
export interface Known {
  nodes: Map<string, string[]>;
  shared: Map<string, string[]>;
  /** Cell → its volumes, as they were last seen. */
  volumes: Map<string, Map<string, MapVolume>>;
  lines: Map<string, number>;
  /** For which width of a node. */
  linesAt: number;
  /** Grows with what is known. */
  version: number;
}

export const nothingKnown = (): Known =>
  ({ nodes: new Map(), shared: new Map(), volumes: new Map(), lines: new Map(), linesAt: 0, version: 0 });

/** So many more volumes may be gone from a cell than are there, until their gaps are closed. */
const MOST_GAPS = 8;
const UNREACHED = "unreached";
const cellOf = (it: MapVolume) => (!it.reached ? UNREACHED : it.node === null ? `shared/${it.path.join("/")}` : `node/${it.node}`);

export function remember(known: Known, map: VolumeMap): Known {
  const sizes = () => known.nodes.size + known.shared.size + known.volumes.size;
  const before = sizes();
  for (const node of map.nodes ?? []) known.nodes.set(node.name, node.path);
  for (const it of map.volumes ?? []) {
    if (it.reached && it.node === null) known.shared.set(it.path.join("/"), it.path);
    const volumes = known.volumes.get(cellOf(it)) ?? new Map<string, MapVolume>();
    if (!volumes.has(it.name)) known.version += 1;
    known.volumes.set(cellOf(it), volumes.set(it.name, it));
  }
  if (map.volumes === null) {
    for (const it of map.groups) if (it.path.length > 0 && Object.keys(it.own).length > 0) known.shared.set(it.path.join("/"), it.path);
  }
  if (sizes() > before) known.version += 1;
  return known;
}

interface Group {
  path: string[];
  children: Map<string, Group>;
  cells: Cell[];
  shared: Told | null;
}

export function layOut(map: VolumeMap, known: Known, width: number, size: Size): Layout {
  const root: Group = { path: [], children: new Map(), cells: [], shared: null };
  const nodes = new Map((map.nodes ?? []).map((it) => [it.name, it]));
  const there = new Map<string, MapVolume[]>();
  for (const it of map.volumes ?? []) push(there, cellOf(it), it);
  const segmentsOf = (id: string, counts: Counts) => (map.volumes ? ofVolumes(there.get(id) ?? [], gone(known, id, there.get(id) ?? [])) : ofCounts(counts));
  for (const name of [...known.nodes.keys()].sort(byName)) {
    const node = nodes.get(name) ?? null;
    const path = node?.path ?? known.nodes.get(name)!;
    const id = `node/${name}`;
    groupAt(root, path).cells.push(cell(id, name, "node", path, segmentsOf(id, node?.states ?? {}), node?.states ?? {}, node));
  }
  if (map.nodes === null) addCounted(root, map);
  const counts = new Map(map.groups.map((it) => [it.path.join("/"), it.own]));
  for (const key of [...known.shared.keys()].sort(byName)) {
    const path = known.shared.get(key)!;
    const own = counts.get(key) ?? {};
    const label = path.length ? `any node of ${path.at(-1)}` : "any node";
    groupAt(root, path).cells.push(cell(`shared/${key}`, label, "shared", path, segmentsOf(`shared/${key}`, own), own));
  }
  if (map.volumes && known.volumes.has(UNREACHED)) {
    root.cells.push(cell(UNREACHED, "out of reach", "unreached", [], segmentsOf(UNREACHED, {}), countsOf(there.get(UNREACHED) ?? [])));
  }
  const layout: Layout = { cells: [], boxes: [], height: 0, lineHeight: 0 };
  const measure = measureFor(root, known, width, size);
  layout.lineHeight = measure.lineHeight;
  const box = place(root, 0, 0, Math.max(width, 240), measure, known, layout);
  layout.height = box.h;
  return layout;
}

function gone(known: Known, id: string, there: MapVolume[]): MapVolume[] {
  const volumes = known.volumes.get(id);
  if (!volumes || volumes.size === there.length) return [];
  const names = new Set(there.map((it) => it.name));
  const missing = [...volumes.values()].filter((it) => !names.has(it.name));
  if (missing.length <= there.length + MOST_GAPS) return missing;
  for (const it of missing) volumes.delete(it.name);
  return [];
}

function countsOf(volumes: MapVolume[]): Counts {
  const counts: Counts = {};
  for (const it of volumes) {
    const count = (counts[it.state] ??= { volumes: 0, bytes: 0 });
    count.volumes += 1;
    count.bytes += it.bytes;
  }
  return counts;
}

function measureFor(root: Group, known: Known, width: number, size: Size): Drawn {
  let widest = 0;
  const few = size === "large" && known.nodes.size <= FEW.nodes;
  const w = few ? Math.min(FEW.w, Math.max(CELL.large.w, width - 40)) : CELL[size].w;
  if (known.linesAt !== w) {
    known.lines.clear();
    known.linesAt = w;
  }
  const visit = (group: Group) => {
    const names = group.cells.filter((it) => it.kind === "node").map((it) => it.label);
    group.shared = names.length > 1 ? tellApart(names) : null;
    for (const it of group.cells) {
      it.short = group.shared?.short.get(it.label) ?? it.label;
      // One that is alone in its group is cut rather than making all others as wide.
      if (group.shared) widest = Math.max(widest, it.kind === "node" ? it.short.length : 0);
      if (size === "large" && it.kind === "node") linesIn(it, w, known);
    }
    group.children.forEach(visit);
  };
  visit(root);
  const lineHeight = size !== "large" ? 0 : few ? LINE.claims : LINE.names;
  if (size === "small") {
    return { ...CELL.small, w: Math.min(WIDEST.small, Math.max(CELL.small.w, Math.ceil(widest * LETTER.small) + 5)), size, lineHeight };
  }
  return { ...CELL[size], w, size, lineHeight };
}

/** As many as its volumes ever took. */
function linesIn(it: Cell, width: number, known: Known): void {
  wrapped(it, width - 8);
  it.lines = Math.max(it.lines, known.lines.get(it.id) ?? 1);
  known.lines.set(it.id, it.lines);
}

/** Volumes one after the other in lines, as wide as they are large, and none narrower than what tells it apart. */
function wrapped(it: Cell, width: number): void {
  if (it.segments.every((one) => one.volume === null && one.state !== GAP)) return;
  const least = it.segments.map((one) => Math.min(width * WIDEST.volume, one.short.length * LETTER.volume + 9));
  const all = it.segments.reduce((sum, one) => sum + one.to - one.from, 0) || 1;
  const linesAt = (scale: number): [number, number[]] => {
    const wide = it.segments.map((one, i) => Math.min(width, Math.max(least[i]!, ((one.to - one.from) / all) * scale)));
    let [line, left] = [0, 0];
    for (const one of wide) {
      if (left > 0 && left + one > width + 0.01) [line, left] = [line + 1, 0];
      left += one;
    }
    return [line + 1, wide];
  };
  // As many lines as the names need, and some more where that leaves no room for what is larger; then as wide as fits.
  const [needed] = linesAt(0);
  const lines = needed === 1 ? 1 : Math.ceil(needed * 1.4);
  let scale = lines * width;
  while (linesAt(scale)[0] > lines && scale > 1) scale *= 0.94;
  const [, wide] = linesAt(scale > 1 ? scale : 0);
  let [line, left] = [0, 0];
  it.segments.forEach((one, i) => {
    if (left > 0 && left + wide[i]! > width + 0.01) [line, left] = [line + 1, 0];
    Object.assign(one, { line, from: left / width, to: (left + wide[i]!) / width });
    left += wide[i]!;
  });
  it.lines = line + 1;
}

/** Too many nodes to list: one cell stands for a group's nodes. */
function addCounted(root: Group, map: VolumeMap): void {
  const deepest = Math.max(...map.groups.map((it) => it.path.length));
  for (const it of map.groups) {
    if (it.path.length !== deepest) continue;
    groupAt(root, it.path).cells.push(cell(`group/${it.path.join("/")}`, `${it.nodes} nodes`, "node", it.path, ofCounts(it.states), it.states));
  }
}

function cell(
  id: string, label: string, kind: Cell["kind"], path: string[], segments: Segment[], states: Counts, node: MapNode | null = null,
): Cell {
  const pods = [...new Set(segments.flatMap((it) => it.volume?.pods ?? []))].sort(byName);
  return { id, label, short: label, kind, node, states, path, pods, segments, lines: 1, x: 0, y: 0, w: 0, h: 0 };
}

function groupAt(root: Group, path: string[]): Group {
  let here = root;
  path.forEach((name, depth) => {
    let next = here.children.get(name);
    if (!next) here.children.set(name, (next = { path: path.slice(0, depth + 1), children: new Map(), cells: [], shared: null }));
    here = next;
  });
  return here;
}

/** `gone`: they were there at another moment, and leave a gap. */
export function ofVolumes(volumes: MapVolume[], gone: MapVolume[] = []): Segment[] {
  const sorted = [...volumes, ...gone].sort((a, b) => byName(a.name, b.name));
  // Sized by capacity, and none too small to be seen.
  const least = sorted.reduce((sum, it) => sum + it.bytes, 0) / Math.max(1, sorted.length * 8);
  const { short } = tellApart(sorted.map((it) => it.name));
  const claims = tellApart([...new Set(volumes.flatMap((it) => it.claim ?? []))]).short;
  const missing = new Set(gone);
  return spread(sorted.map((it) => ({
    weight: Math.max(it.bytes, least, 1), state: missing.has(it) ? GAP : it.state, volume: missing.has(it) ? null : it,
    short: short.get(it.name)!, claimShort: claims.get(it.claim ?? "") ?? "",
  })));
}

export function ofCounts(counts: Counts): Segment[] {
  const found = STATES.filter((it) => counts[it]);
  return spread(found.map((it) => ({ weight: Math.max(1, counts[it]!.bytes), state: it, volume: null, short: "", claimShort: "" })));
}

function spread(parts: (Pick<Segment, "state" | "volume" | "short" | "claimShort"> & { weight: number })[]): Segment[] {
  const sum = parts.reduce((total, it) => total + it.weight, 0) || 1;
  let reached = 0;
  return parts.map(({ weight, ...it }) => {
    const from = reached / sum;
    reached += weight;
    return { ...it, from, to: reached / sum, line: 0 };
  });
}

function place(group: Group, x: number, y: number, width: number, measure: Drawn, known: Known, layout: Layout): { w: number; h: number } {
  const depth = group.path.length;
  const { h, gap } = measure;
  const label = depth > 0 ? LABEL : 0;
  const pad = depth > 0 ? PAD : 0;
  const inner = width - 2 * pad;
  const columns = Math.max(1, Math.floor((inner + gap) / (measure.w + gap)));
  // What is left over of a row widens its nodes: more of their names fit.
  const w = Math.min((inner + gap) / columns - gap, measure.w * 2);
  const isCut = measure.size === "small" || group.cells.some((it) => it.kind === "node" && it.label.length * LETTER.small > w - 10);
  const box: Box = {
    path: group.path, label: group.path.at(-1) ?? "", depth, x, y, w: width, h: 0, labelHeight: label, shared: isCut ? group.shared : null,
  };
  if (depth > 0) layout.boxes.push(box);
  let top = y + label + (depth > 0 ? 2 : 0);
  const tall = (cells: Cell[]) => (measure.lineHeight ? HEAD + Math.max(...cells.map((it) => it.lines)) * measure.lineHeight + 3 : h);
  const nodes = group.cells.filter((it) => it.kind === "node");
  for (let first = 0; first < nodes.length; first += columns) {
    const row = nodes.slice(first, first + columns);
    const height = tall(row);
    row.forEach((it, i) => layout.cells.push(Object.assign(it, { x: x + pad + i * (w + gap), y: top, w, h: height })));
    top += height + gap;
  }
  // Volumes of many nodes have the whole width: there may be as many of them as of all nodes together.
  for (const it of group.cells) {
    if (it.kind === "node") continue;
    if (measure.lineHeight) linesIn(it, inner, known);
    layout.cells.push(Object.assign(it, { x: x + pad, y: top, w: inner, h: tall([it]) }));
    top += it.h + gap;
  }
  if (group.cells.length > 0) top += PAD - gap;
  // Leaves stand side by side, as wide as they need to be and as their row has room for; groups of groups take all of it.
  const children = [...group.children.values()].sort((a, b) => byName(a.path.at(-1)!, b.path.at(-1)!));
  const widths = children.map((it) => Math.min(inner, it.children.size > 0 ? inner : preferred(it, measure)));
  let extra = 0;
  for (let first = 0, next = 0; first < children.length; first = next) {
    let used = 0;
    for (next = first; next < children.length && (next === first || used + widths[next]! <= inner + 1); next++) used += widths[next]! + PAD;
    // The last row is not wider than the one above it: what is alike looks alike.
    const share = Math.max(0, (inner - used + PAD) / (next - first));
    extra = next < children.length || first === 0 ? share : Math.min(share, extra);
    let left = x + pad;
    let tallest = 0;
    for (const [i, child] of children.slice(first, next).entries()) {
      const took = place(child, left, top, Math.min(inner, widths[first + i]! + extra), measure, known, layout);
      left += took.w + PAD;
      tallest = Math.max(tallest, took.h);
    }
    top += tallest + (next < children.length ? PAD : 0);
  }
  if (children.length > 0) top += pad;
  box.h = Math.max(top - y, label + h / 2);
  return { w: width, h: box.h };
}

function preferred(group: Group, { w, gap }: Drawn): number {
  const least = Math.max(1, Math.ceil(150 / (w + gap)));
  const columns = Math.min(Math.max(least, group.cells.length), Math.max(least, Math.ceil(Math.sqrt(group.cells.length * 1.5))));
  return columns * (w + gap) - gap + 2 * PAD;
}

export function cellAt(layout: Layout, x: number, y: number): { cell: Cell; segment: Segment | null } | null {
  for (const it of layout.cells) {
    if (x < it.x || x >= it.x + it.w || y < it.y || y >= it.y + it.h) continue;
    const share = Math.min(0.9999, Math.max(0, (x - it.x - INSET) / (it.w - 2 * INSET)));
    const line = layout.lineHeight ? Math.floor((y - it.y - HEAD) / layout.lineHeight) : y > it.y + it.h * 0.45 ? 0 : -1;
    return { cell: it, segment: it.segments.find((one) => one.line === line && share >= one.from && share < one.to) ?? null };
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
