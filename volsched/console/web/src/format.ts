/** Numbers and times as people read them. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)}\u00a0${UNITS[unit]}`;
}

export function count(value: number, one: string, many = `${one}s`): string {
  return `${value.toLocaleString("en")} ${value === 1 ? one : many}`;
}

/** `2 h 5 min`: the two largest parts. */
export function duration(seconds: number): string {
  const parts: [string, number][] = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const told: string[] = [];
  let rest = Math.max(0, Math.round(seconds));
  for (const [name, size] of parts) {
    const whole = Math.floor(rest / size);
    if (whole > 0 && told.length < 2) told.push(`${whole} ${name}`);
    else if (told.length > 0) break;
    rest -= whole * size;
  }
  return told.join(" ") || "0 s";
}

/** Of microseconds since 1970. */
export function clock(micros: number, withDate = true): string {
  const time = new Date(micros / 1000);
  // An answer or an address may hold what is no time; the page is more than one stamp.
  if (Number.isNaN(time.getTime())) return "–";
  const text = time.toISOString();
  return withDate ? `${text.slice(0, 10)} ${text.slice(11, 19)}` : text.slice(11, 19);
}

export function micros(text: string | null | undefined): number {
  return text ? Date.parse(text) * 1000 : 0;
}

export function ago(text: string | null | undefined, now = Date.now()): string {
  return text ? `${duration((now - Date.parse(text)) / 1000)} ago` : "–";
}
