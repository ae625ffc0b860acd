/** Our own HTTP API, and nothing else: one origin, the reader's token in a header, never in an address. */
import { batch, signal } from "@preact/signals";
import type { components } from "./api-types";

export type VolumeMap = components["schemas"]["VolumeMap"];
export type MapVolume = components["schemas"]["MapVolume"];
export type MapNode = components["schemas"]["MapNode"];
export type MapGroup = components["schemas"]["MapGroup"];
export type LogTimeline = components["schemas"]["LogTimeline"];
export type Counts = MapGroup["states"];

const OWN = "/apis/volsched.io/v1";
const TOKEN = "volsched.token";

/** In place of a status: nobody answered, or not to the end. */
export const NO_ANSWER = 0;
const TOO_MANY = 429;

export class ApiError extends Error {
  constructor(readonly code: number, message: string) {
    super(message);
  }

  /** The same question may be answered later; else the server has answered, and says the same again. */
  get mayPass(): boolean {
    return this.code === NO_ANSWER || this.code === TOO_MANY || this.code >= 500;
  }
}

/** Kept until the tab is closed, and in no other tab. */
export const token = signal<string>(sessionStorage.getItem(TOKEN) ?? "");
export const unauthorized = signal(false);
/** Why the token of before was refused. */
export const refusal = signal("");
/** Grows with every sign-in and sign-out: what one reader was shown is not kept for the next one. */
export const session = signal(0);

export function signIn(text: string): void {
  const given = text.trim();
  if (given) sessionStorage.setItem(TOKEN, given);
  else sessionStorage.removeItem(TOKEN);
  batch(() => {
    token.value = given;
    unauthorized.value = false;
    refusal.value = "";
    session.value += 1;
  });
}

/** Only who was asked for a token has one: the next reader is asked too, and at once. */
export function signOut(): void {
  batch(() => {
    signIn("");
    unauthorized.value = true;
  });
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

export async function post<T>(path: string, body: unknown, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return request<T>(asked(path, query), {
    method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" }, signal,
  });
}

const NAMES_ALONE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/** Kubernetes' watch of a kind: `changed` is called when some of it changed. Ends when the server, or the signal, ends it. */
export async function watch(path: string, resourceVersion: number, changed: () => void, signal: AbortSignal): Promise<void> {
  const headers = new Headers({ accept: NAMES_ALONE });
  if (token.value) headers.set("authorization", `Bearer ${token.value}`);
  const answer = await fetch(asked(path, { watch: "true", resourceVersion }), { headers, signal, credentials: "omit", redirect: "error" });
  if (!answer.ok || !answer.body) throw new ApiError(answer.status, `the server answered ${answer.status}`);
  const lines = answer.body.getReader();
  while (!(await lines.read()).done) changed();
}

async function request<T>(path: string, options: RequestInit): Promise<T> {
  const headers = new Headers(options.headers);
  headers.set("accept", "application/json");
  const sent = token.value;
  if (sent) headers.set("authorization", `Bearer ${sent}`);
  let answer: Response;
  try {
    answer = await fetch(path, { ...options, headers, credentials: "omit", redirect: "error" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(NO_ANSWER, "the server does not answer");
  }
  const body = (await answer.json().catch(() => null)) as { message?: string } | null;
  // A server that is killed in the middle of an answer has said nothing.
  if (answer.ok && body === null) throw new ApiError(NO_ANSWER, "the server's answer broke off");
  if (answer.ok) return body as T;
  // A question of before the sign-in may be refused after it, and says nothing about the token of now.
  if (answer.status === 401 && sent === token.value) {
    unauthorized.value = true;
    refusal.value = sent ? (body?.message ?? "it is not known here") : "";
  }
  throw new ApiError(answer.status, body?.message ?? `the server answered ${answer.status}`);
}

/** The namespace of `shop/db-0` and the name; cluster objects have none. */
export function split(key: string): [string | null, string] {
  const slash = key.indexOf("/");
  return slash < 0 ? [null, key] : [key.slice(0, slash), key.slice(slash + 1)];
}
