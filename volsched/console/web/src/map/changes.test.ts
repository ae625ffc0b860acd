import { expect, test } from "vitest";
import type { VolumeMap } from "../api";
import { changesBetween } from "./changes";

const free = (volumes: number) => ({ free: { volumes, bytes: volumes } });
const picture = (nodes: Record<string, number>) =>
  ({ volumes: null, nodes: Object.entries(nodes).map(([name, volumes]) => ({ name, path: [], pods: 0, states: free(volumes) })) }) as unknown as VolumeMap;

test("where volumes are counted, nodes that came, changed and went differ", () => {
  const told = changesBetween(picture({ same: 1, more: 1, went: 2 }), picture({ same: 1, more: 3, came: 1 }));
  expect(told.map((it) => [it.name, it.before, it.after])).toEqual([
    ["came", "not there", "1 free"], ["more", "1 free", "3 free"], ["went", "2 free", "not there"],
  ]);
});
