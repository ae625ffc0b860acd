/** Small parts that every page uses. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, own, post } from "./api";
import { link, linkOfStream } from "./route";

export interface Loaded<T> {
  value: T | null;
  error: Error | null;
  busy: boolean;
}

/**
 * Asks again when `key` changes; what was shown stays until the next answer is there. What stands before the `@` of
 * a key is what is asked about: where only the rest changes, a question under way is let end, or a log that
 * grows faster than it is answered would never be shown, and an answer that `isFresh` is not asked for again.
 * A live answer that cannot be renewed stays beside the error: the page, and what was begun on it, must not vanish.
 */
export function useAnswer<T>(key: string, ask: (signal: AbortSignal) => Promise<T>, isFresh: (value: T) => boolean = () => false): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T> & { subject: string }>({ value: null, error: null, busy: true, subject: "" });
  const under = useRef<{ key: string; controller: AbortController } | null>(null);
  const wanted = useRef({ key, ask, isFresh });
  wanted.current = { key, ask, isFresh };
  const begin = () => {
    const asked = wanted.current.key;
    const controller = new AbortController();
    under.current = { key: asked, controller };
    setLoaded((it) => ({ ...it, busy: true }));
    const end = (value: T | null, error: Error | null) => {
      if (controller.signal.aborted) return;
      under.current = null;
      const subject = subjectOf(asked);
      const isStale = error !== null && asked.includes("@live") && !isRefusal(error);
      setLoaded((it) => ({ value: isStale && it.subject === subject ? it.value : value, error, busy: false, subject }));
      if (wanted.current.key !== asked && !(value !== null && wanted.current.isFresh(value))) begin();
    };
    wanted.current.ask(controller.signal).then((value) => end(value, null), (error: Error) => end(null, error));
  };
  useEffect(() => {
    // Nothing to ask yet.
    if (key === "") return;
    const isLive = key.includes("@live");
    if (under.current && subjectOf(under.current.key) === subjectOf(key) && isLive) return;
    if (isLive && loaded.value !== null && loaded.subject === subjectOf(key) && isFresh(loaded.value)) return;
    under.current?.controller.abort();
    begin();
  }, [key]);
  useEffect(() => () => under.current?.controller.abort(), []);
  // What is shown is not yet the answer to what is asked, also before the question is on its way.
  return { ...loaded, busy: loaded.busy || (key !== "" && loaded.subject !== subjectOf(key)) };
}

/** The server has answered: it is not there, or not for this reader. Anything else may pass. */
const isRefusal = (error: Error) => error instanceof ApiError && error.code < 500 && error.code !== 429;

const subjectOf = (key: string) => key.split("@")[0]!;

export function Trouble({ error, what }: { error: Error; what: string }) {
  const code = error instanceof ApiError ? error.code : 0;
  if (code === 403) {
    return <p class="note">{what} is not yours to see: {error.message}</p>;
  }
  return <p class={code === 404 ? "note" : "note wrong"} role="status">{what}: {error.message}</p>;
}

export function StateMark({ state }: { state: string }) {
  return <span class={`state state-${state.toLowerCase()}`}>{state}</span>;
}

/** Letters: names that are longer may be broken. */
const LONG_NAME = 30;

export function Ref({ kind, name }: { kind: string; name: string | null | undefined }) {
  if (!name) return <span class="quiet">–</span>;
  return <a class={name.length > LONG_NAME ? "long" : undefined} href={link(kind, name.split("/"))}>{name}</a>;
}

export function StreamRef({ stream }: { stream: string }) {
  const place = linkOfStream(stream);
  return place ? <a href={place}>{stream}</a> : <span>{stream}</span>;
}

export function Card({ title, children, id, aside }: {
  title: string; children: ComponentChildren; id?: string; aside?: ComponentChildren;
}) {
  return (
    <section class="card" id={id} aria-label={title}>
      <h2>{title}{aside && <span class="aside">{aside}</span>}</h2>
      {children}
    </section>
  );
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => (
        <div><dt>{name}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}

export function Table({ head, rows, label, empty = "nothing" }: {
  head: string[]; rows: ComponentChildren[][]; label: string; empty?: string;
}) {
  if (rows.length === 0) return <p class="quiet">{empty}</p>;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead><tr>{head.map((it) => <th scope="col">{it}</th>)}</tr></thead>
        <tbody>{rows.map((cells) => <tr>{cells.map((it, i) => <td data-label={head[i]}>{it ?? "–"}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

/** Whether the reader may do it, as the server says; until it has said so, no. */
export function useMay(resource: string, act: string): boolean {
  const asked = useAnswer<{ status: { allowed: boolean } }>(`may ${resource}/${act}`, () =>
    post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
      apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: { group: "volsched.io", resource, subresource: act, verb: "create" } },
    }));
  return asked.value?.status.allowed === true;
}

/** An act of an operator: nothing is done without a reason, which goes into the log. */
export function Act({ path, acts, done }: { path: string; acts: Record<string, string>; done?: () => void }) {
  const [said, setSaid] = useState<string | null>(null);
  return (
    <form class="act" onSubmit={async (event) => {
      event.preventDefault();
      const field = event.currentTarget.elements.namedItem("reason") as HTMLInputElement;
      const act = (event.submitter as HTMLButtonElement).value;
      const reason = field.value.trim();
      if (!reason) return setSaid("Say why: it is kept with what is done.");
      try {
        setSaid((await post<{ message: string }>(own(`${path}/${act}`), { reason })).message);
        field.value = "";
        done?.();
      } catch (error) {
        setSaid((error as Error).message);
      }
    }}>
      <input name="reason" required placeholder="reason, for the log" aria-label="Reason" autocomplete="off" />
      {Object.entries(acts).map(([act, title]) => <button type="submit" value={act}>{title}</button>)}
      {said && <p role="status" class="note">{said}</p>}
    </form>
  );
}
