import { expect, test } from "vitest";
import type { MapNode, MapVolume, VolumeMap } from "../api";
import { changesBetween } from "./changes";
import { cellAt, layOut, ofVolumes, remember, sizeFor } from "./layout";

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
  const known = remember(new Map(), full);
  const before = layOut(full, known, 800, "large");
  const after = layOut(map([node("n3")], []), known, 800, "large");
  expect(after.cells.map((it) => [it.id, it.x, it.y])).toEqual(before.cells.map((it) => [it.id, it.x, it.y]));
  expect(after.cells.map((it) => it.node === null)).toEqual([true, true, false]);
});

test("no two nodes overlap, at any size", () => {
  const nodes = Array.from({ length: 300 }, (_, i) => node(`n${i}`, `z${i % 7}`));
  for (const size of ["large", "medium", "small"] as const) {
    const { cells } = layOut(map(nodes, []), remember(new Map(), map(nodes, [])), 900, size);
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
  const layout = layOut(drawn, remember(new Map(), drawn), 800, "large");
  const cell = layout.cells[0]!;
  expect(cellAt(layout, cell.x + cell.w - 4, cell.y + cell.h - 6)?.segment?.volume?.name).toBe("b");
  expect(cellAt(layout, cell.x + 5, cell.y + 3)?.segment).toBeNull();
  expect(cellAt(layout, -5, -5)).toBeNull();
});

test("volumes that every node of a group reaches, and those that none does, have places of their own", () => {
  const drawn = map([node("n1")], [volume("zonal", null), volume("gone", null, { reached: false, path: [] })]);
  const ids = layOut(drawn, remember(new Map(), drawn), 800, "large").cells.map((it) => it.id);
  expect(ids).toEqual(expect.arrayContaining(["node/n1", "shared/z", "unreached"]));
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
