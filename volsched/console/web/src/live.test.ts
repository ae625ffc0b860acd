import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { get, signIn, unauthorized } from "./api";
import { poll, timeline } from "./live";

/** A server whose answers come when the test says so, in any order. */
const waiting: ((answer: Response) => void)[] = [];
const answered = (place: number, status: number, body: unknown) => waiting[place]!(new Response(JSON.stringify(body), { status }));

beforeEach(() => {
  waiting.length = 0;
  vi.stubGlobal("fetch", () => new Promise<Response>((resolve) => waiting.push(resolve)));
  signIn("");
  timeline.value = null;
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
