/** The moment that is looked at: the log's curve, kept up while it is live, and what follows from the address. */
import { computed, effect, signal, untracked } from "@preact/signals";
import { ApiError, get, own, session, type LogTimeline, unauthorized, watch } from "./api";
import { cutAxis, makeAxis, positionOfTime, timeOfPosition, type Point } from "./axis";
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
/** The curve of the range that was picked, and which range that was. */
const part = signal<{ of: string; curve: LogTimeline } | null>(null);
/** The whole log, which knows the time of every position. Of a namespace its own events alone are told, and counted. */
export const whole = computed(() => makeAxis((timeline.value?.points ?? []) as [number, number][], namespace.value !== ""));
const rangeKey = computed(() => (range.value ? JSON.stringify([session.value, namespace.value, range.value.from, range.value.to]) : ""));
/** What the slider covers: one object, a range, or all of it. */
export const axis = computed(() => {
  if (subject.value) return makeAxis(subject.value.points, true);
  if (!range.value) return whole.value;
  const even = namespace.value !== "";
  if (part.value?.of === rangeKey.value) return makeAxis(part.value.curve.points as [number, number][], even);
  // Until the finer curve is there, and not the curve of the range before.
  return cutAxis(whole.value, Number(range.value.from ?? 0), Number(range.value.to ?? Infinity), even);
});
export const head = computed(() => timeline.value?.head ?? 0);
/** Of what stands in an address: a position, or a time as it is typed; the end of the log where it is neither. */
export const positionOf = (text: string): number => parseMoment(text) ?? head.value;
/** The position of the address; the end of the log where it is live. */
export const position = computed(() => (at.value === null ? head.value : positionOf(at.value)));
export const shownAt = computed(() => timeOfPosition(whole.value, position.value));

/** A server that does not answer is asked again after so long. */
const PATIENCE_MILLISECONDS = 60_000;
/** Grows when somebody else looks, or at another namespace: what was asked before is of no use any more. */
let turn = 0;
/** The turn whose question is under way: one at a time, or a slow server is asked ever more. */
let asking: { turn: number; controller: AbortController } | null = null;

effect(() => {
  void [session.value, namespace.value];
  turn += 1;
  asking?.controller.abort();
  timeline.value = null;
  trouble.value = null;
  forbidden.value = false;
});

export async function poll(): Promise<void> {
  if (asking?.turn === turn || unauthorized.value) return;
  const mine = { turn, controller: new AbortController() };
  asking = mine;
  const patience = window.setTimeout(() => mine.controller.abort(), PATIENCE_MILLISECONDS);
  const read = async (points: number) => {
    const found = await get<LogTimeline>(own("/timeline", namespace.value), { points }, mine.controller.signal);
    // What another reader may see, or of another namespace, is not shown to whoever looks now.
    if (mine.turn !== turn) return null;
    heard.value = Date.now();
    trouble.value = null;
    forbidden.value = false;
    return found;
  };
  try {
    const before = timeline.value;
    const glance = before === null ? null : await read(2);
    // The curve is asked for only where it has grown.
    if (before === null || (glance && (glance.head !== before.head || glance.first !== before.first))) {
      timeline.value = (await read(600)) ?? timeline.value;
    } else if (glance && glance.heardAt !== before.heardAt) {
      timeline.value = { ...before, heardAt: glance.heardAt };
    }
  } catch (error) {
    if (mine.turn !== turn) return;
    forbidden.value = error instanceof ApiError && error.code === 403;
    trouble.value = mine.controller.signal.aborted ? "The server does not answer." : error instanceof Error ? error.message : String(error);
  } finally {
    window.clearTimeout(patience);
    if (asking === mine) asking = null;
  }
}

/** Turns true and false with the tab: nobody looks at one that is hidden, and a browser has few connections to a server. */
const isVisible = signal(!document.hidden);
/** The watch that is under way, and which reader and namespace it is for. */
let watching: { turn: number; controller: AbortController } | null = null;
let rungAt = 0;
/** The turn whose watch was refused: it would be refused again. */
let refused = -1;

/**
 * The live picture follows a watch of the volumes, of a namespace its claims: what happens to them is asked for at once.
 * It is one stream and not one for each kind, for a browser opens six connections; the rest is seen at the next beat, and
 * so is everything while there is no stream. Under a steady rain of changes it rings no more often than that.
 */
export async function follow(): Promise<void> {
  const wanted = at.value === null && isVisible.value && !unauthorized.value && timeline.value !== null && refused !== turn;
  if (watching && (!wanted || watching.turn !== turn)) watching.controller.abort();
  if (!wanted || watching?.turn === turn) return;
  const mine = (watching = { turn, controller: new AbortController() });
  const kind = namespace.value ? `/api/v1/namespaces/${encodeURIComponent(namespace.value)}/persistentvolumeclaims` : "/api/v1/persistentvolumes";
  try {
    await watch(kind, head.value, () => {
      if (mine.turn !== turn || Date.now() - rungAt < POLL_MILLISECONDS) return;
      rungAt = Date.now();
      void poll();
    }, mine.controller.signal);
  } catch (error) {
    if (error instanceof ApiError && [401, 403, 404].includes(error.code)) refused = mine.turn;
    // Else it is opened again at the next beat, and what is wrong is told by what is asked then.
  } finally {
    if (watching === mine) watching = null;
  }
}

export function start(): void {
  effect(() => {
    void [session.value, namespace.value, unauthorized.value];
    // What it reads is not what it waits for.
    untracked(() => void poll());
  });
  effect(() => {
    const [picked, of] = [range.value, rangeKey.value];
    // A range without an end grows with the log.
    if (!picked || (picked.to === null && head.value === 0)) return;
    get<LogTimeline>(own("/timeline", namespace.value), { points: 600, since: picked.from, until: picked.to }).then(
      (curve) => {
        const isOlder = part.value?.of === of && part.value.curve.head > curve.head;
        if (rangeKey.value === of && !isOlder) part.value = { of, curve };
      },
      // What is wrong with a range is told where it was written; the slider stays as it is.
      () => undefined,
    );
  });
  effect(() => {
    void [at.value, isVisible.value, unauthorized.value, session.value, namespace.value, timeline.value === null];
    untracked(() => void follow());
  });
  document.addEventListener("visibilitychange", () => {
    isVisible.value = !document.hidden;
    if (isVisible.value) void poll();
  });
  setInterval(() => {
    now.value = Date.now();
    if (document.hidden) return;
    void poll();
    void follow();
  }, POLL_MILLISECONDS);
}

export function goTo(wanted: number | null, remember = false): void {
  if (wanted === null) return amend({ at: null }, remember);
  const least = timeline.value?.first ?? 1;
  // Before the log's end is known, the moment is as it was asked for.
  const most = timeline.value?.head ?? Infinity;
  amend({ at: String(Math.min(most, Math.max(least, Math.round(wanted)))) }, remember);
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
