import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { get, signIn, unauthorized } from "./api";
import { axis, follow, goTo, poll, positionOf, timeline } from "./live";
import { amend } from "./route";

/** A server whose answers come when the test says so, in any order. */
const waiting: ((answer: Response) => void)[] = [];
const signals: (AbortSignal | null | undefined)[] = [];
const answered = (place: number, status: number, body: unknown) => waiting[place]!(new Response(JSON.stringify(body), { status }));

beforeEach(() => {
  waiting.length = signals.length = 0;
  vi.stubGlobal("fetch", (_: string, options: RequestInit) => new Promise<Response>((resolve, reject) => {
    waiting.push(resolve);
    signals.push(options.signal);
    options.signal?.addEventListener("abort", () => reject(new Error("aborted")));
  }));
  amend({ ns: null, at: null, from: null, to: null });
  signIn("");
});
afterEach(() => {
  vi.unstubAllGlobals();
});

test("a refusal of before the sign-in does not ask for the token again", async () => {
  const early = get("/apis/volsched.io/v1/map");
  signIn("a token");
  answered(0, 401, { message: "who are you" });
  await expect(early).rejects.toThrow("who are you");
  expect(unauthorized.value).toBe(false);
  const refused = get("/apis/volsched.io/v1/map");
  answered(1, 401, { message: "unknown token" });
  await expect(refused).rejects.toThrow("unknown token");
  expect(unauthorized.value).toBe(true);
});

test("what one reader was told is not shown to the next one", async () => {
  signIn("an auditor's");
  const polled = poll();
  signIn("a viewer's");
  answered(0, 200, { head: 7, first: 1, points: [] });
  await polled;
  expect(timeline.value).toBeNull();
});

const curve = (head: number) => ({ head, first: 1, heardAt: null, failures: [], points: [[1, 1e6], [head, head * 1e6]] });

test("what was asked of one namespace is not shown of the next one", async () => {
  amend({ ns: "shop" });
  const shop = poll();
  amend({ ns: "bank" });
  const bank = poll();
  answered(1, 200, curve(9));
  await bank;
  answered(0, 200, curve(7));
  await shop;
  expect(timeline.value?.head).toBe(9);
});

test("a server that is slow is asked one question at a time", async () => {
  const first = poll();
  await poll();
  expect(waiting.length).toBe(1);
  answered(0, 200, curve(7));
  await first;
  void poll();
  expect(waiting.length).toBe(2);
  answered(1, 200, curve(7));
});

test("the slider shows the range of the address at once, and not the one before", async () => {
  const polled = poll();
  answered(0, 200, curve(100));
  await polled;
  amend({ from: "20", to: "40" });
  expect([axis.value.points[0], axis.value.points.at(-1)]).toEqual([[20, 20e6], [40, 40e6]]);
  amend({ from: "60", to: null });
  expect([axis.value.points[0]![0], axis.value.points.at(-1)![0]]).toEqual([60, 100]);
  amend({ from: "x", to: "y" });
  expect(axis.value.points.length).toBe(2);
});

test("an address that names no moment is drawn as now, and what names one goes no further than the log", async () => {
  const polled = poll();
  answered(0, 200, curve(100));
  await polled;
  expect(positionOf("abc")).toBe(100);
  expect(positionOf("60")).toBe(60);
  goTo(1000);
  expect(location.hash).toContain("at=100");
});

test("a change of volumes is asked for at once, and the past is not watched", async () => {
  const polled = poll();
  answered(0, 200, curve(100));
  await polled;
  let change: () => void = () => undefined;
  const stream = new ReadableStream({ start: (it) => { change = () => it.enqueue(new TextEncoder().encode("{}\n")); } });
  const watched = follow();
  waiting[1]!(new Response(stream, { status: 200 }));
  expect(waiting.length).toBe(2);
  change();
  await vi.waitUntil(() => waiting.length === 3);
  answered(2, 200, curve(101));
  await vi.waitUntil(() => waiting.length === 4);
  answered(3, 200, curve(101));
  await vi.waitUntil(() => timeline.value?.head === 101);
  amend({ at: "60" });
  void follow();
  expect(signals[1]!.aborted).toBe(true);
  expect(waiting.length).toBe(4);
  void watched;
});

test("a watch that is refused is not asked for again by the same reader", async () => {
  const polled = poll();
  answered(0, 200, curve(100));
  await polled;
  const watched = follow();
  answered(1, 403, { message: "not yours" });
  await watched;
  await follow();
  expect(waiting.length).toBe(2);
  signIn("another");
  const again = poll();
  answered(2, 200, curve(100));
  await again;
  void follow();
  expect(waiting.length).toBe(4);
});
