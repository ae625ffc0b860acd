import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { heard, now, timeline } from "./live";
import { amend, at } from "./route";
import { TimeBar } from "./TimeBar";

beforeEach(() => {
  vi.useFakeTimers();
  amend({ at: null, vs: null, from: null, to: null });
  timeline.value = {
    apiVersion: "", kind: "LogTimeline", first: 1, last: 100, head: 100, events: 100, points: [[1, 1e6], [100, 100e6]], failures: [], heardAt: null,
  };
  act(() => render(<TimeBar />, document.body));
});
afterEach(() => {
  act(() => render(null, document.body));
  timeline.value = null;
  vi.useRealTimers();
});

function drag(share: number): void {
  const slider = document.querySelector<HTMLInputElement>(".slider-input")!;
  slider.value = String(share);
  act(() => void slider.dispatchEvent(new Event("input", { bubbles: true })));
}
const rest = () => act(() => void vi.advanceTimersByTime(1_000));

test("the moment under the hand is gone to when the hand rests", () => {
  drag(300);
  expect(at.value).toBeNull();
  drag(500);
  rest();
  expect(Number(at.value)).toBeGreaterThan(40);
  expect(Number(at.value)).toBeLessThan(60);
});

test("whoever goes live before the hand has rested stays there", () => {
  drag(300);
  act(() => document.querySelector<HTMLButtonElement>(".live")!.click());
  rest();
  expect(at.value).toBeNull();
  expect(document.querySelector(".moment")!.textContent).toContain("event 100 of 100");
});

test("whoever opens another moment before the hand has rested stays there", () => {
  drag(300);
  act(() => amend({ at: "90" }));
  rest();
  expect(at.value).toBe("90");
});

test("before the log is known the bar takes its room and says nothing", () => {
  act(() => {
    timeline.value = null;
  });
  expect(document.querySelector(".timebar")!.className).toContain("unknown");
  expect(document.querySelectorAll(".timebar button").length).toBeGreaterThan(6);
});

test("a server that is not heard of is said to be behind, and not to be up to date", () => {
  act(() => {
    now.value = heard.value = 1e12;
  });
  const live = document.querySelector(".live")!;
  expect(live.textContent).toContain("up to date");
  act(() => {
    now.value += 10_000;
  });
  expect(live.textContent).toContain("10 s behind");
  expect(live.className).toContain("behind");
});
