import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError, get } from "./api";
import { Card, useAnswer, usePages, type Loaded, type Page } from "./ui";

interface Question { moment: string; answer: (value: string) => Promise<void>; fail: (error: Error) => Promise<void>; signal: AbortSignal }
const UNREACHABLE = new ApiError(0, "the server does not answer");

/** What follows from a promise follows some turns later, and from an effect when the work has been drawn. */
const TURNS = 9;
async function settled(work: () => unknown): Promise<void> {
  for (const one of [work, () => undefined]) {
    await act(async () => {
      one();
      for (let i = 0; i < TURNS; i++) await Promise.resolve();
    });
  }
}

let asked: Question[] = [];
let shown: Loaded<string>;
const last = () => asked.at(-1)!;

function Shown({ subject, moment, isFresh }: { subject: string; moment: string; isFresh?: (value: string) => boolean }) {
  shown = useAnswer<string>(subject, moment, (signal) => new Promise((resolve, reject) => asked.push({
    moment, signal, answer: (value) => settled(() => resolve(value)), fail: (error) => settled(() => reject(error)),
  })), { isFresh });
  return null;
}
const show = (subject: string, moment: string, isFresh?: (value: string) => boolean) =>
  settled(() => render(<Shown subject={subject} moment={moment} isFresh={isFresh} />, document.body));

beforeEach(() => {
  vi.useFakeTimers();
  asked = [];
});
afterEach(() => {
  render(null, document.body);
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("an answer that comes after the next question was asked is not shown", async () => {
  await show("map", "60");
  const early = last();
  await show("map", "70");
  await last().answer("of 70");
  await early.answer("of 60");
  expect(shown).toMatchObject({ value: "of 70", late: false, busy: false });
  expect(early.signal.aborted).toBe(true);
});

test("what is shown of another moment, or with other filters, is marked as late until its answer is there", async () => {
  await show("map", "live 7");
  await last().answer("of now");
  await show("map", "live 8");
  expect(shown).toMatchObject({ value: "of now", late: false, ofNow: true });
  await show("map", "60");
  expect(shown).toMatchObject({ value: "of now", late: true, busy: true, subject: "map" });
  await last().answer("of 60");
  await show("map of bank", "60");
  expect(shown).toMatchObject({ value: "of 60", late: true, subject: "map", ofNow: false });
  await last().answer("of bank");
  expect(shown).toMatchObject({ value: "of bank", late: false, subject: "map of bank" });
});

test("the picture of a past moment is not taken for the live one, however much it knows of the log", async () => {
  await show("map", "60", () => true);
  await last().answer("of 60");
  await show("map", "live 80", () => true);
  expect(asked.length).toBe(2);
  await last().answer("of now");
  await show("map", "live 81", () => true);
  expect(asked.length).toBe(2);
});

test("whoever goes live does not wait for the past that was asked before", async () => {
  await show("map", "60");
  await show("map", "live 80");
  expect(asked.map((it) => it.moment)).toEqual(["60", "live 80"]);
  // A live question under way is let end, however fast the log grows.
  await show("map", "live 81");
  expect(asked.length).toBe(2);
});

test("a lost answer is asked for again, ever more patiently, and a refusal is not", async () => {
  await show("map", "60");
  await last().fail(UNREACHABLE);
  expect(shown.error).toBe(UNREACHABLE);
  await settled(() => vi.advanceTimersByTime(2_000));
  expect(asked.length).toBe(2);
  await last().fail(new ApiError(503, "busy"));
  await settled(() => vi.advanceTimersByTime(2_000));
  expect(asked.length).toBe(2);
  await settled(() => vi.advanceTimersByTime(2_000));
  await last().answer("of 60");
  expect(shown).toMatchObject({ value: "of 60", error: null });
  await show("map", "61");
  await last().fail(new ApiError(404, "there is no such moment"));
  await settled(() => vi.advanceTimersByTime(600_000));
  expect(asked.length).toBe(4);
});

test("a question that is never answered is given up and asked again", async () => {
  await show("map", "60");
  const first = last();
  await settled(() => vi.advanceTimersByTime(120_000));
  expect(first.signal.aborted).toBe(true);
  expect(shown.error?.message).toMatch(/has not answered/);
  await settled(() => vi.advanceTimersByTime(2_000));
  await last().answer("of 60");
  expect(shown).toMatchObject({ value: "of 60", error: null });
});

test("an answer that broke off is none", async () => {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response('{"nodes": [', { status: 200 })));
  await expect(get("/apis/volsched.io/v1/map")).rejects.toMatchObject({ code: 0, mayPass: true });
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
  await expect(get("/apis/volsched.io/v1/map")).rejects.toThrow("the server does not answer");
});

let pages: ReturnType<typeof usePages<string>>;
function Paged({ moment, ask }: { moment: string; ask: (after?: string) => Promise<Page<string>> }) {
  pages = usePages<string>("search", moment, ask);
  return null;
}

test("a further page that fails is told, and the pages before it stay", async () => {
  const answers = [{ items: ["a"], metadata: { continue: "2" } }, UNREACHABLE, { items: ["b"] }];
  const ask = async () => {
    const next = answers.shift()!;
    if (next instanceof Error) throw next;
    return next;
  };
  await settled(() => render(<Paged moment="live" ask={ask} />, document.body));
  await settled(() => pages.further!());
  expect(pages).toMatchObject({ items: ["a"], error: UNREACHABLE, busy: false });
  await settled(() => pages.further!());
  expect(pages).toMatchObject({ items: ["a", "b"], error: null, further: null });
});

test("everything that was found is more than what is shown, up to an end that is told", async () => {
  const ask = async (after?: string) => ({ items: [after ?? "1"], metadata: after === "4" ? {} : { continue: String(Number(after ?? "1") + 1) } });
  await settled(() => render(<Paged moment="live" ask={ask} />, document.body));
  expect(await pages.everything(9)).toEqual({ items: ["1", "2", "3", "4"], isWhole: true });
  expect(await pages.everything(2)).toEqual({ items: ["1", "2", "3"], isWhole: false });
  expect(pages.items).toEqual(["1"]);
});

test("a further page of the search before is not added to the next one", async () => {
  let late: (page: Page<string>) => void = () => undefined;
  const ask = (after?: string) => after ? new Promise<Page<string>>((resolve) => { late = resolve; })
    : Promise.resolve({ items: ["first"], metadata: { continue: "2" } });
  await settled(() => render(<Paged moment="60" ask={ask} />, document.body));
  await settled(() => pages.further!());
  await settled(() => render(<Paged moment="70" ask={ask} />, document.body));
  await settled(() => late({ items: ["of 60"] }));
  expect(pages).toMatchObject({ items: ["first"], busy: false });
});

test("what has no answer yet says so, and what follows it waits for it", () => {
  render(<><Card title="Why" pending>…</Card><Card title="What happened">…</Card></>, document.body);
  expect([...document.querySelectorAll("section")].map((it) => it.matches(".pending ~ *"))).toEqual([false, true]);
  expect(document.querySelector("section")!.getAttribute("aria-busy")).toBe("true");
});
