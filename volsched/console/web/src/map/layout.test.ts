import { expect, test } from "vitest";
import type { MapNode, MapVolume, VolumeMap } from "../api";
import { changesBetween } from "./changes";
import { cellAt, layOut, nothingKnown, ofVolumes, remember, sizeFor } from "./layout";

const volume = (name: string, node: string | null, more: Partial<MapVolume> = {}): MapVolume => ({
  name, node, path: ["z"], state: "free", bytes: 2 ** 30, storageClass: "c", claim: null, pods: [], data: null, binding: null, reached: true, ...more,
});
const node = (name: string, zone = "z"): MapNode => ({ name, path: [zone], pods: 0, schedulable: true, states: {} });

function map(nodes: MapNode[], volumes: MapVolume[]): VolumeMap {
  const zones = [...new Set(nodes.map((it) => it.path[0]!))];
  return {
    apiVersion: "", kind: "VolumeMap", position: 1, head: 1, at: null, by: ["zone"], labels: [], classes: [], nodes, volumes, waiting: [], waitingPods: 0,
    groups: [[], ...zones.map((it) => [it])].map((path) => ({ path, nodes: 0, pods: 0, states: {}, own: {} })),
  };
}

test("nothing changes its place while nodes come and go", () => {
  const full = map([node("n1"), node("n2"), node("n3")], []);
  const known = remember(nothingKnown(), full);
  const before = layOut(full, known, 800, "large");
  const after = layOut(map([node("n3")], []), known, 800, "large");
  expect(after.cells.map((it) => [it.id, it.x, it.y])).toEqual(before.cells.map((it) => [it.id, it.x, it.y]));
  expect(after.cells.map((it) => it.node === null)).toEqual([true, true, false]);
});

test("no two nodes overlap, at any size", () => {
  const nodes = Array.from({ length: 300 }, (_, i) => node(`n${i}`, `z${i % 7}`));
  for (const size of ["large", "medium", "small"] as const) {
    const { cells } = layOut(map(nodes, []), remember(nothingKnown(), map(nodes, [])), 900, size);
    const corners = new Set(cells.map((it) => `${it.x},${it.y}`));
    expect(corners.size).toBe(300);
    expect(Math.max(...cells.map((it) => it.x + it.w))).toBeLessThanOrEqual(900);
  }
});

test("volumes take room by their capacity, and the smallest can still be seen", () => {
  const [large, small] = ofVolumes([volume("a", "n", { bytes: 1000 * 2 ** 30 }), volume("b", "n")]);
  expect(large!.to - large!.from).toBeGreaterThan(0.8);
  expect(small!.to - small!.from).toBeGreaterThan(0.03);
});

test("a click finds the volume under it", () => {
  const drawn = map([node("n1")], [volume("a", "n1"), volume("b", "n1")]);
  const layout = layOut(drawn, remember(nothingKnown(), drawn), 800, "large");
  const cell = layout.cells[0]!;
  expect(cellAt(layout, cell.x + cell.w - 4, cell.y + cell.h - 6)?.segment?.volume?.name).toBe("b");
  expect(cellAt(layout, cell.x + 5, cell.y + 3)?.segment).toBeNull();
  expect(cellAt(layout, -5, -5)).toBeNull();
});

test("volumes that every node of a group reaches, and those that none does, have places of their own", () => {
  const drawn = map([node("n1")], [volume("zonal", null), volume("gone", null, { reached: false, path: [] })]);
  const ids = layOut(drawn, remember(nothingKnown(), drawn), 800, "large").cells.map((it) => it.id);
  expect(ids).toEqual(expect.arrayContaining(["node/n1", "shared/z", "unreached"]));
});

test("however many nodes there are, each has room for what tells it apart", () => {
  const nodes = Array.from({ length: 5000 }, (_, i) => node(`ip-10-0-${Math.floor(i / 256)}-${i % 256}.internal`, `z${i % 5}`));
  const drawn = map(nodes, []);
  const { cells, boxes } = layOut(drawn, remember(nothingKnown(), drawn), 900, "small");
  expect(cells.filter((it) => it.w < it.short.length * 6.4 || it.short.length < 1)).toEqual([]);
  expect(cells.find((it) => it.label === "ip-10-0-3-7.internal")!.short).toBe("3-7");
  expect(boxes[0]!.shared).toMatchObject({ start: "ip-10-0-", end: ".internal" });
});

test("volumes of a node take as many lines as their names need, and keep them while time moves", () => {
  const many = Array.from({ length: 10 }, (_, i) => volume(`volume-${String(i * 5000).padStart(6, "0")}`, "n1", { bytes: (1 + (i % 7)) * 2 ** 30 }));
  const full = map([node("n1")], many);
  const known = remember(nothingKnown(), full);
  const [cell] = layOut(full, known, 340, "large").cells;
  for (const it of cell!.segments) expect((it.to - it.from) * 260).toBeGreaterThanOrEqual(it.short.length * 6);
  const wide = (i: number) => cell!.segments[i]!.to - cell!.segments[i]!.from;
  expect(wide(6)).toBeGreaterThan(wide(0));
  for (const [i, it] of cell!.segments.entries()) {
    const next = cell!.segments[i + 1];
    if (next?.line === it.line) expect(next.from).toBeGreaterThanOrEqual(it.to - 1e-9);
    expect(it.to).toBeLessThanOrEqual(1.0001);
  }
  const before = layOut(map([node("n1")], many.slice(0, 1)), known, 340, "large");
  expect(before.cells[0]!.h).toBe(cell!.h);
});

test("many nodes are drawn small, and few with their names", () => {
  expect([sizeFor(20), sizeFor(500), sizeFor(5000)]).toEqual(["large", "medium", "small"]);
});

test("two moments differ by the volumes that changed", () => {
  const before = map([node("n1")], [volume("a", "n1"), volume("b", "n1")]);
  const after = map([node("n1")], [volume("a", "n1", { state: "bound", claim: "shop/data" }), volume("c", "n1")]);
  expect(changesBetween(before, after)).toEqual([
    { name: "a", node: "n1", before: "free", after: "bound, shop/data" },
    { name: "b", node: "n1", before: "free", after: "not there" },
    { name: "c", node: "n1", before: "not there", after: "free" },
  ]);
});

test("volumes keep their place while others of their node come and go", () => {
  const full = map([node("n1")], [volume("a", "n1"), volume("b", "n1"), volume("c", "n1")]);
  const known = remember(nothingKnown(), full);
  const at = (drawn: VolumeMap) => layOut(drawn, known, 800, "large").cells[0]!.segments;
  const later = at(map([node("n1")], [volume("c", "n1")]));
  expect(later.map((it) => [it.from, it.to, it.line])).toEqual(at(full).map((it) => [it.from, it.to, it.line]));
  expect(later.map((it) => it.state)).toEqual(["gap", "gap", "free"]);
});

test("a hundred volumes of a whole zone take no room from its nodes", () => {
  const zonal = Array.from({ length: 100 }, (_, i) => volume(`pvc-${i}0000000-aaaa-bbbb-cccc-0123456789ab`, null));
  const drawn = map([node("n1"), node("n2")], [...zonal, volume("a", "n1")]);
  const { cells } = layOut(drawn, remember(nothingKnown(), drawn), 800, "large");
  const [first, second, shared] = cells;
  expect(first!.h).toBeLessThan(80);
  expect(second!.y).toBe(first!.y);
  expect(shared!.y).toBeGreaterThan(first!.y + first!.h);
  expect(shared!.h).toBeGreaterThan(200);
});
