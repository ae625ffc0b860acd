import { expect, test } from "vitest";
import { tellApart } from "./names";

const shorts = (...names: string[]) => [...tellApart(names).short.values()];

test("neighbours are told apart by what they do not share", () => {
  expect(shorts("node-00000", "node-00019")).toEqual(["00000", "00019"]);
  expect(shorts("ip-10-0-1-7.ec2.internal", "ip-10-0-12-30.ec2.internal")).toEqual(["1-7", "12-30"]);
  expect(shorts("gke-pool-x9k2", "gke-pool-x7p3")).toEqual(["x9k2", "x7p3"]);
  expect(shorts("worker1", "worker12")).toEqual(["1", "12"]);
  expect(tellApart(["ip-1.lan", "ip-2.lan"])).toMatchObject({ start: "ip-", end: ".lan" });
});

test("every name keeps something of its own, and those that share nothing are whole", () => {
  expect(shorts("node-1")).toEqual(["node-1"]);
  expect(shorts("alpha", "beta")).toEqual(["alpha", "beta"]);
  expect(shorts("node", "node-1")).toEqual(["node", "node-1"]);
  expect(shorts("a-1-b", "a-1-b-b")).toEqual(["b", "b-b"]);
  const many = Array.from({ length: 5000 }, (_, i) => `rack${i % 7}-node-${i}.zone.local`);
  expect(new Set(shorts(...many)).size).toBe(5000);
});

test("of volumes that a provisioner named, the first part of the UUID tells them apart", () => {
  expect(shorts("pvc-3f2a81c0-0000-4000-8000-0123456789ab", "pvc-91c7b2d4-1111-4111-9111-ba9876543210")).toEqual(["3f2a81c0…", "91c7b2d4…"]);
  expect(shorts("pvc-3f2a81c0-0000-4000-8000-0123456789ab", "pvc-3f2a81c0-0000-4000-8000-0123456789ac")[0]).not.toContain("…");
});
