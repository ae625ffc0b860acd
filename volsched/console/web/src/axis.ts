/**
 * The axis of the time slider. An event takes as much room as any other, and a pause as much as its logarithm:
 * a night in which nothing happened is a finger's width, and a second with a thousand events can be looked into.
 */

export type Point = readonly [position: number, at: number];

export interface Pause {
  from: number;
  to: number;
  seconds: number;
}

export interface Axis {
  points: readonly Point[];
  /** Where each point is, from 0 to 1. */
  places: readonly number[];
  /** How many events there were until each point. */
  counts: readonly number[];
  pauses: readonly Pause[];
}

const PAUSE_SECONDS = 300;

/**
 * `even`: only events like these count, and there are as many of them between any two points; else all events of the
 * log do, and positions say how many lie between.
 */
export function makeAxis(points: readonly Point[], even = false): Axis {
  const events = Math.max(1, (points.at(-1)?.[0] ?? 0) - (points[0]?.[0] ?? 0));
  const weights: number[] = points.length > 0 ? [0] : [];
  for (let i = 1; i < points.length; i++) {
    const seconds = Math.max(0, points[i]![1] - points[i - 1]![1]) / 1e6;
    const share = even ? 1 / (points.length - 1) : (points[i]![0] - points[i - 1]![0]) / events;
    weights.push(share + Math.log2(1 + seconds) / 250);
  }
  const sum = weights.reduce((total, it) => total + it, 0) || 1;
  const places: number[] = [];
  let reached = 0;
  for (const it of weights) places.push((reached += it) / sum);
  const pauses: Pause[] = [];
  for (let i = 1; i < points.length; i++) {
    const seconds = (points[i]![1] - points[i - 1]![1]) / 1e6;
    if (seconds >= PAUSE_SECONDS) pauses.push({ from: places[i - 1]!, to: places[i]!, seconds });
  }
  return { points, places, counts: points.map((it, i) => (even ? i : it[0])), pauses };
}

/** Index of the last entry that is not beyond the value. */
function before(values: readonly number[], value: number): number {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (values[middle]! <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

function between(from: readonly number[], to: readonly number[], value: number): number {
  if (from.length === 0) return 0;
  const i = before(from, value);
  const next = Math.min(i + 1, from.length - 1);
  const span = from[next]! - from[i]!;
  const share = span > 0 ? Math.min(1, Math.max(0, (value - from[i]!) / span)) : 0;
  return to[i]! + share * (to[next]! - to[i]!);
}

const positions = (axis: Axis) => axis.points.map((it) => it[0]);
const times = (axis: Axis) => axis.points.map((it) => it[1]);

export const placeOfPosition = (axis: Axis, position: number) => between(positions(axis), axis.places, position);
export const placeOfTime = (axis: Axis, at: number) => between(times(axis), axis.places, at);
export const positionAt = (axis: Axis, share: number) => Math.round(between(axis.places, positions(axis), share));
export const timeOfPosition = (axis: Axis, position: number) => between(positions(axis), times(axis), position);
/** The last position that was written by then. */
export const positionOfTime = (axis: Axis, at: number) => Math.floor(between(times(axis), positions(axis), at));

/** Events in each of so many equal parts of the axis. */
export function bars(axis: Axis, parts: number): number[] {
  const found: number[] = [];
  let last = axis.counts[0] ?? 0;
  for (let i = 1; i <= parts; i++) {
    const next = between(axis.places, axis.counts, i / parts);
    found.push(next - last);
    last = next;
  }
  return found;
}

/** A part of an axis, with its ends where they fall between two points; all of it where there is no such part. */
export function cutAxis(axis: Axis, from: number, to: number, even = false): Axis {
  const [first, last] = [axis.points[0]?.[0] ?? 0, axis.points.at(-1)?.[0] ?? 0];
  const [low, high] = [Math.max(first, from), Math.min(last, to)];
  if (!(low < high)) return axis;
  const inside = axis.points.filter((it) => it[0] > low && it[0] < high);
  return makeAxis([[low, timeOfPosition(axis, low)], ...inside, [high, timeOfPosition(axis, high)]], even);
}
