/** Every view is an address: the page and its object in the path, the moment and the filters behind it. */
import { computed, signal } from "@preact/signals";

export interface Place {
  page: string;
  rest: string[];
  query: Record<string, string>;
}

export function parsePlace(hash: string): Place {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...rest] = path.split("/").map(decoded);
  return { page: page || "map", rest, query: Object.fromEntries(new URLSearchParams(search)) };
}

/** An address that was typed or cut may hold a `%` that stands for nothing. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function placeText(page: string, rest: string[], query: Record<string, string | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  return `#/${[page, ...rest].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const place = signal<Place>(parsePlace(location.hash));
window.addEventListener("hashchange", () => {
  place.value = parsePlace(location.hash);
});

/** What is kept from page to page: the moment, the range of the slider, and the namespace. */
const KEPT = ["at", "vs", "from", "to", "ns"];
export const kept = computed(() =>
  Object.fromEntries(Object.entries(place.value.query).filter(([name]) => KEPT.includes(name))),
);
/** The position that is looked at; null: now, and what follows. */
export const at = computed(() => place.value.query.at ?? null);
export const versus = computed(() => place.value.query.vs ?? null);
/** The part of the log that the slider covers; null: all of it, or from or up to where it is named. */
export const range = computed(() => {
  const { from = null, to = null } = place.value.query;
  return from === null && to === null ? null : { from, to };
});
export const namespace = computed(() => place.value.query.ns ?? "");

export function link(page: string, rest: string[] = [], query: Record<string, string | null> = {}): string {
  return placeText(page, rest, { ...kept.value, ...query });
}

/** Change part of the address. Filters replace it; a new moment can be gone back from. */
export function amend(query: Record<string, string | null>, remember = false): void {
  const { page, rest, query: before } = place.value;
  const next = placeText(page, rest, { ...before, ...query });
  if (next === placeText(page, rest, before)) return;
  history[remember ? "pushState" : "replaceState"](null, "", next);
  place.value = parsePlace(next);
}

const KIND_PAGES: Record<string, string> = {
  pod: "pod", claim: "claim", volume: "volume", node: "node", binding: "binding",
  Pod: "pod", PersistentVolumeClaim: "claim", PersistentVolume: "volume", Node: "node",
};

/** Of a stream such as `claim/shop/data-0`; null where it has no page. */
export function linkOfStream(stream: string): string | null {
  const [noun = "", ...key] = stream.split("/");
  const page = KIND_PAGES[noun];
  return page ? link(page, key) : null;
}
