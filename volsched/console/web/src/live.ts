/** The moment that is looked at: the log's curve, kept up while it is live, and what follows from the address. */
import { computed, effect, signal } from "@preact/signals";
import { ApiError, get, own, type LogTimeline, token } from "./api";
import { makeAxis, positionOfTime, timeOfPosition, type Point } from "./axis";
import { amend, at, namespace, range } from "./route";

const POLL_MILLISECONDS = 2000;

export const timeline = signal<LogTimeline | null>(null);
export const trouble = signal<string | null>(null);
export const forbidden = signal(false);
/** When the server was last heard of. */
export const heard = signal(0);
export const now = signal(Date.now());
/** One object that the slider is narrowed to: its events are the only moments. */
export const subject = signal<{ name: string; points: readonly Point[] } | null>(null);
/** The curve of the range that was picked. */
const part = signal<LogTimeline | null>(null);
/** The whole log, which knows the time of every position. Of a namespace its own events alone are told, and counted. */
export const whole = computed(() => makeAxis((timeline.value?.points ?? []) as [number, number][], namespace.value !== ""));
/** What the slider covers: one object, a range, or all of it. */
export const axis = computed(() => {
  if (subject.value) return makeAxis(subject.value.points, true);
  return range.value && part.value ? makeAxis(part.value.points as [number, number][], namespace.value !== "") : whole.value;
});
export const head = computed(() => timeline.value?.head ?? 0);
/** The position of the address; the end of the log where it is live. */
export const position = computed(() => (at.value === null ? head.value : Number(at.value)));
export const shownAt = computed(() => timeOfPosition(whole.value, position.value));

async function read(points: number): Promise<LogTimeline> {
  const found = await get<LogTimeline>(own("/timeline", namespace.value), { points });
  heard.value = Date.now();
  trouble.value = null;
  forbidden.value = false;
  return found;
}

export async function poll(): Promise<void> {
  const reader = token.value;
  try {
    const glance = timeline.value === null ? null : await read(2);
    if (token.value !== reader) return;
    // The curve is asked for only where it has grown.
    if (glance === null || glance.head !== timeline.value?.head || glance.first !== timeline.value.first) {
      const curve = await read(600);
      // What another reader may see is not shown to whoever has signed in since.
      if (token.value === reader) timeline.value = curve;
    } else if (glance.heardAt !== timeline.value.heardAt) {
      timeline.value = { ...timeline.value, heardAt: glance.heardAt };
    }
  } catch (error) {
    if (token.value !== reader) return;
    forbidden.value = error instanceof ApiError && error.code === 403;
    trouble.value = error instanceof Error ? error.message : String(error);
  }
}

export function start(): void {
  let asked = "";
  effect(() => {
    const wanted = `${token.value}\n${namespace.value}`;
    if (wanted !== asked) {
      asked = wanted;
      timeline.value = null;
      void poll();
    }
  });
  effect(() => {
    const picked = range.value;
    // A range without an end grows with the log.
    if (!picked || (picked.to === null && head.value === 0)) return;
    get<LogTimeline>(own("/timeline", namespace.value), { points: 600, since: picked.from, until: picked.to }).then(
      (found) => {
        if (range.value?.from === picked.from && range.value.to === picked.to) part.value = found;
      },
      // What is wrong with a range is told where it was written; the slider stays as it is.
      () => undefined,
    );
  });
  setInterval(() => {
    now.value = Date.now();
    if (!document.hidden) void poll();
  }, POLL_MILLISECONDS);
}

export function goTo(wanted: number | null, remember = false): void {
  if (wanted === null) return amend({ at: null }, remember);
  const least = timeline.value?.first ?? 1;
  amend({ at: String(Math.min(head.value, Math.max(least, Math.round(wanted)))) }, remember);
}

/** What is typed into the field: a position, a time, `2h` for two hours ago, or `now`. */
export function parseMoment(text: string, clockNow = Date.now()): number | null | undefined {
  const word = text.trim().toLowerCase();
  if (word === "" || word === "now" || word === "live") return null;
  if (/^#?\d{1,18}$/.test(word)) return Number(word.replace("#", ""));
  const ago = /^(\d+)\s*(s|m|h|d|w)(in)?( ago)?$/.exec(word);
  const seconds: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
  const time = ago
    ? clockNow - Number(ago[1]) * seconds[ago[2]!]! * 1000
    : Date.parse(/\d[ t]\d/.test(word) && !/(z|[+-]\d\d:?\d\d)$/.test(word) ? `${word.replace(" ", "T")}Z` : word);
  return Number.isNaN(time) ? undefined : positionOfTime(whole.value, time * 1000);
}

/** `120..260` or `2h..1h`: a part of the log; undefined where it is none. */
export function parseRange(text: string, clockNow = Date.now()): { from: string; to: string | null } | undefined {
  const [first, last, ...rest] = text.split("..");
  if (last === undefined || rest.length > 0 || !first?.trim()) return undefined;
  const [from, to] = [parseMoment(first, clockNow), parseMoment(last, clockNow)];
  if (from === undefined || from === null || to === undefined || (to !== null && to <= from)) return undefined;
  return { from: String(Math.max(1, from)), to: to === null ? null : String(to) };
}

export const failures = computed(() =>
  [...(timeline.value?.failures ?? [])].sort((a, b) => a.at - b.at),
);
