import { expect, test } from "vitest";
import { manifests } from "./manifests";

test("YAML documents, JSON and lists are the objects that they hold", async () => {
  expect(await manifests("kind: Pod\n---\nkind: Node\n---\n")).toEqual([{ kind: "Pod" }, { kind: "Node" }]);
  expect(await manifests('{"kind": "Pod"}')).toEqual([{ kind: "Pod" }]);
  expect(await manifests('[{"kind": "Pod"}]')).toEqual([{ kind: "Pod" }]);
  expect(await manifests("kind: List\nitems:\n- kind: Pod\n")).toEqual([{ kind: "Pod" }]);
});

test("words and times stay words, as Kubernetes reads them from JSON", async () => {
  expect(await manifests("at: 2026-11-18T12:00:00Z\nsays: on\n")).toEqual([{ at: "2026-11-18T12:00:00Z", says: "on" }]);
});

test("what is no manifest is refused in a line", async () => {
  await expect(manifests("a: [")).rejects.toThrow(/^this is neither YAML nor JSON: [^\n]+$/);
  await expect(manifests("\n")).rejects.toThrow("there is no manifest here");
});
