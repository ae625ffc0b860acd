import { render } from "preact";
import { beforeEach, expect, test } from "vitest";
import { ExplainView } from "./Explain";

beforeEach(() => {
  document.body.innerHTML = "<div id='here'></div>";
});
const HOSTILE = "<img src=x onerror=alert(1)>";

test("a remedy is told with the node that it leads to", () => {
  render(<ExplainView told={{
    pod: "shop/db", node: null, fits: false, message: "0/3 nodes are available",
    remedies: [{ changes: [{ kind: "lower-request", text: "ask for 6Gi instead of 40Gi" }], node: "node-b" }],
  }} />, document.getElementById("here")!);
  expect(document.querySelector("[data-testid=remedies]")!.textContent).toContain("ask for 6Gi instead of 40Gi → node-b");
  expect(document.body.textContent).toContain("0/3 nodes are available");
});

test("what a message says is text, and never markup", () => {
  render(<ExplainView told={{ pod: "shop/db", node: null, fits: false, message: HOSTILE }} />, document.getElementById("here")!);
  expect(document.querySelector("img")).toBeNull();
  expect(document.body.textContent).toContain(HOSTILE);
});
