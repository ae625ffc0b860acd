/**
 * Names on a dense map. What neighbours share is told once, above them; what tells them apart is written on each,
 * so that it can be read without hovering however many there are.
 */

/** Where names may be cut: behind a separator, and between letters and a number; not within `x9k2`. */
const isSeam = (names: readonly string[], at: number) =>
  /[^a-z0-9]/i.test(names[0]![at - 1]!) || (/[a-z]/i.test(names[0]![at - 1]!) && names.every((it) => /^\d+(?![a-z])/i.test(it.slice(at))));

/** What all of them begin with, up to a seam; something is left of each. */
export function sharedStart(names: readonly string[]): string {
  const first = names[0];
  if (first === undefined || names.length < 2) return "";
  let length = 0;
  while (length < first.length && names.every((it) => it[length] === first[length])) length += 1;
  while (length > 0 && !(names.every((it) => it.length > length) && isSeam(names, length))) length -= 1;
  return first.slice(0, length);
}

/** What all of them end with, from a separator on, behind what they begin with. */
export function sharedEnd(names: readonly string[], start: string): string {
  const first = names[0];
  if (first === undefined || names.length < 2) return "";
  let length = 0;
  while (length < first.length && names.every((it) => it.at(-1 - length) === first.at(-1 - length))) length += 1;
  const isCut = (from: number) => /[^a-z0-9]/i.test(first.at(-from)!) && names.every((it) => it.length > start.length + from);
  while (length > 0 && !isCut(length)) length -= 1;
  return length > 0 ? first.slice(-length) : "";
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export interface Told {
  start: string;
  end: string;
  /** By whole name: what tells it apart. */
  short: Map<string, string>;
}

export function tellApart(names: readonly string[]): Told {
  const start = sharedStart(names);
  const end = sharedEnd(names, start);
  const short = new Map(names.map((it) => [it, it.slice(start.length, it.length - end.length)]));
  const first = new Set([...short.values()].map((it) => it.slice(0, 8)));
  // Volumes that a provisioner made are named by UUIDs, of which the first part is as telling as all of it.
  if (names.length > 1 && first.size === short.size && [...short.values()].every((it) => UUID.test(it))) {
    for (const [name, it] of short) short.set(name, `${it.slice(0, 8)}…`);
  }
  return { start, end, short };
}
