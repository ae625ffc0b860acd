import { expect, test } from "vitest";
import { lanesOf, type LogEntry } from "./lanes";

function entry(position: number, type: string, data: Record<string, unknown>, more: Partial<LogEntry> = {}): LogEntry {
  return {
    position, type, data, at: "2026-11-18T00:00:00Z", object: "binding/b", actor: "worker/w", what: "", reason: null,
    binding: "b", cause: null, causedBy: null, ...more,
  };
}

const PLAN = entry(1, "BindingPlanned", {
  pod: "shop/db", node: "n1", legs: [{ claim: "shop/small", volume: "v1" }, { claim: "shop/large", volume: "v2" }],
});

test("each leg has a lane with its steps in the order of the log", () => {
  const lanes = lanesOf([
    PLAN, entry(5, "LegMoved", { leg: 0, state: "written" }), entry(9, "LegMoved", { leg: 0, state: "bound" }),
    entry(11, "BindingMoved", { state: "committed", open: false }),
  ])!;
  expect(lanes.lanes.map((it) => it.title)).toEqual(["binding", "shop/small", "shop/large"]);
  expect(lanes.lanes[1]!.steps.map((it) => it.label)).toEqual(["assumed", "written", "bound"]);
  expect([lanes.outcome, lanes.first, lanes.last]).toEqual(["committed", 1, 11]);
});

test("whoever took a volume in between stands in its lane, between assumed and voided", () => {
  const theft = entry(6, "VolumeChanged", {}, { object: "volume/v2", actor: "cluster", what: "spec.claimRef=else/thief", binding: null });
  const lanes = lanesOf([PLAN, entry(7, "LegMoved", { leg: 1, state: "voided" }, { reason: "Conflict" })], [theft])!;
  expect(lanes.lanes[2]!.steps.map((it) => [it.label, it.tone])).toEqual([
    ["assumed", "plan"], ["changed by cluster", "foreign"], ["voided", "wrong"],
  ]);
});

test("a provisioned volume is in its lane once it has a name", () => {
  const lanes = lanesOf([
    entry(1, "BindingPlanned", { pod: "p", node: "n", legs: [{ claim: "c", volume: null }] }),
    entry(2, "LegMoved", { leg: 0, state: "bound", volume: "pvc-1" }),
  ])!;
  expect(lanes.lanes[1]!.volume).toBe("pvc-1");
});

test("without its plan there are no lanes", () => {
  expect(lanesOf([entry(4, "LegMoved", { leg: 0, state: "bound" })])).toBeNull();
});
