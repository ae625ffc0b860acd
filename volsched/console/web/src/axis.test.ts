import { expect, test } from "vitest";
import { bars, makeAxis, placeOfPosition, positionAt, positionOfTime, timeOfPosition, type Point } from "./axis";

const SECOND = 1e6;
const HOUR = 3600 * SECOND;
const burst = (first: number, count: number, start: number): Point[] =>
  Array.from({ length: count }, (_, i) => [first + i, start + i * SECOND] as const);

test("a night without events is folded, and told", () => {
  const axis = makeAxis([...burst(1, 50, 0), ...burst(51, 50, 12 * HOUR)]);
  expect(axis.pauses).toHaveLength(1);
  expect(axis.pauses[0]!.seconds).toBeGreaterThan(11 * 3600);
  expect(axis.pauses[0]!.to - axis.pauses[0]!.from).toBeLessThan(0.1);
});

test("every event has its own place, in order, and is found there again", () => {
  const axis = makeAxis([...burst(1, 50, 0), ...burst(51, 50, 12 * HOUR)]);
  for (let position = 1; position < 100; position++) {
    expect(placeOfPosition(axis, position + 1)).toBeGreaterThan(placeOfPosition(axis, position));
    expect(positionAt(axis, placeOfPosition(axis, position))).toBe(position);
  }
});

test("a time is the last event that was written by then", () => {
  const axis = makeAxis(burst(10, 5, HOUR));
  expect(positionOfTime(axis, HOUR + 2.5 * SECOND)).toBe(12);
  expect(positionOfTime(axis, 0)).toBe(10);
  expect(timeOfPosition(axis, 12)).toBe(HOUR + 2 * SECOND);
});

test("the bars hold every event once", () => {
  const axis = makeAxis([...burst(1, 50, 0), ...burst(51, 50, 12 * HOUR)]);
  expect(bars(axis, 160).reduce((sum, it) => sum + it, 0)).toBeCloseTo(99);
});

test("an empty log has an axis too", () => {
  expect(positionAt(makeAxis([]), 0.5)).toBe(0);
});

test("of one namespace, what others wrote in between takes no room and no bar", () => {
  const axis = makeAxis([[1, 0], [2, SECOND], [5000, 2 * SECOND], [5001, 3 * SECOND]], true);
  expect(bars(axis, 3).map((it) => Math.round(it))).toEqual([1, 1, 1]);
});
