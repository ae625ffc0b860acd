/** Our own HTTP API, and nothing else: one origin, the reader's token in a header, never in an address. */
import { signal } from "@preact/signals";
import type { components } from "./api-types";

export type VolumeMap = components["schemas"]["VolumeMap"];
export type MapVolume = components["schemas"]["MapVolume"];
export type MapNode = components["schemas"]["MapNode"];
export type MapGroup = components["schemas"]["MapGroup"];
export type LogTimeline = components["schemas"]["LogTimeline"];
export type Counts = MapGroup["states"];

const OWN = "/apis/volsched.io/v1";
const TOKEN = "volsched.token";

export class ApiError extends Error {
  constructor(readonly code: number, message: string) {
    super(message);
  }
}

/** Kept until the tab is closed, and in no other tab. */
export const token = signal<string>(sessionStorage.getItem(TOKEN) ?? "");
export const unauthorized = signal(false);

export function signIn(text: string): void {
  token.value = text.trim();
  if (token.value) sessionStorage.setItem(TOKEN, token.value);
  else sessionStorage.removeItem(TOKEN);
  unauthorized.value = false;
}

type Query = Record<string, string | number | null | undefined>;

export function own(path: string, namespace?: string | null): string {
  return `${OWN}${namespace ? `/namespaces/${encodeURIComponent(namespace)}` : ""}${path}`;
}

function asked(path: string, query: Query): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return `${path}${text ? `?${text}` : ""}`;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return request<T>(asked(path, query), { signal });
}

export async function post<T>(path: string, body: unknown, query: Query = {}): Promise<T> {
  return request<T>(asked(path, query), {
    method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" },
  });
}

async function request<T>(path: string, options: RequestInit): Promise<T> {
  const headers = new Headers(options.headers);
  headers.set("accept", "application/json");
  const sent = token.value;
  if (sent) headers.set("authorization", `Bearer ${sent}`);
  const answer = await fetch(path, { ...options, headers, credentials: "omit", redirect: "error" });
  const body = (await answer.json().catch(() => ({}))) as { message?: string };
  if (answer.ok) return body as T;
  // A question of before the sign-in may be refused after it, and says nothing about the token of now.
  if (answer.status === 401 && sent === token.value) unauthorized.value = true;
  throw new ApiError(answer.status, body.message ?? `the server answered ${answer.status}`);
}

/** The namespace of `shop/db-0` and the name; cluster objects have none. */
export function split(key: string): [string | null, string] {
  const slash = key.indexOf("/");
  return slash < 0 ? [null, key] : [key.slice(0, slash), key.slice(slash + 1)];
}
