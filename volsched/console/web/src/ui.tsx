/** Small parts that every page uses. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, NO_ANSWER, own, post } from "./api";
import { link, linkOfStream } from "./route";

export interface Loaded<T> {
  value: T | null;
  error: Error | null;
  busy: boolean;
  /** What is shown answers another question: of the moment or of the filters before. */
  late: boolean;
  /** What the value is about, and whether it is of now. */
  subject: string;
  ofNow: boolean;
}

interface State<T> {
  value: T | null;
  error: Error | null;
  busy: boolean;
  /** What the value answers. */
  subject: string;
  moment: string;
  /** Something was answered, if only an error. */
  settled: boolean;
}

interface Options<T> {
  /** A live answer that is as new as what is known of the log. */
  isFresh?: (value: T) => boolean;
  /** It may take long, and is not asked again by itself. */
  once?: boolean;
}

/** A question without an answer holds one of the browser's few connections, and may never get any. */
const PATIENCE_MILLISECONDS = 120_000;
const AGAIN_MILLISECONDS = { first: 2_000, most: 60_000 };
const LIVE = "live";
const isLive = (moment: string) => moment.startsWith(LIVE);
const isSame = (subject: string, moment: string, other: { subject: string; moment: string }) =>
  subject === other.subject && (moment === other.moment || (isLive(moment) && isLive(other.moment)));

/**
 * Asks when the subject or the moment changes, and nothing while the subject is ""; what was shown stays until the next
 * answer is there, and is `late` until then. Where the moment is live and only goes on (`live 7`, `live 8`), a question
 * under way is let end, or a log that grows faster than it is answered would never be shown.
 * What may pass is asked again, and a live answer that cannot be renewed stays beside its error: the page, and what was
 * begun on it, must not vanish, nor an error outlive its cause.
 */
export function useAnswer<T>(
  subject: string, moment: string, ask: (signal: AbortSignal) => Promise<T>, { isFresh = () => false, once = false }: Options<T> = {},
): Loaded<T> {
  const [state, setState] = useState<State<T>>({ value: null, error: null, busy: true, subject: "", moment: "", settled: false });
  const under = useRef<{ subject: string; moment: string; controller: AbortController } | null>(null);
  const again = useRef({ timer: 0, wait: AGAIN_MILLISECONDS.first });
  const wanted = useRef({ subject, moment, ask, isFresh });
  wanted.current = { subject, moment, ask, isFresh };
  const stop = () => {
    under.current?.controller.abort();
    under.current = null;
    window.clearTimeout(again.current.timer);
  };
  const begin = () => {
    stop();
    const asked = wanted.current;
    const controller = new AbortController();
    under.current = { subject: asked.subject, moment: asked.moment, controller };
    setState((it) => ({ ...it, busy: true }));
    const end = (value: T | null, error: Error | null) => {
      if (controller.signal.aborted) return;
      under.current = null;
      window.clearTimeout(patience);
      const mayPass = error instanceof ApiError && error.mayPass;
      setState((it) => {
        const isKept = error !== null && (mayPass || !(error instanceof ApiError)) && isLive(asked.moment) && isSame(asked.subject, asked.moment, it);
        return { value: isKept ? it.value : value, error, busy: false, subject: asked.subject, moment: asked.moment, settled: true };
      });
      const next = wanted.current;
      const hasMoved = next.subject !== asked.subject || next.moment !== asked.moment;
      if (mayPass && !once) {
        again.current.timer = window.setTimeout(begin, again.current.wait);
        again.current.wait = Math.min(AGAIN_MILLISECONDS.most, again.current.wait * 2);
      } else if (hasMoved && !(value !== null && next.isFresh(value))) begin();
      if (error === null) again.current.wait = AGAIN_MILLISECONDS.first;
    };
    const patience = once ? 0 : window.setTimeout(() => {
      end(null, new ApiError(NO_ANSWER, "the server has not answered for two minutes"));
      controller.abort();
    }, PATIENCE_MILLISECONDS);
    asked.ask(controller.signal).then((value) => end(value, null), (error: Error) => end(null, error));
  };
  useEffect(() => {
    if (subject === "") return stop();
    const goesOn = isLive(moment);
    if (goesOn && under.current && isSame(subject, moment, under.current)) return;
    if (goesOn && state.value !== null && isSame(subject, moment, state) && isFresh(state.value)) return;
    begin();
  }, [subject, moment]);
  useEffect(() => stop, []);
  const late = subject !== "" && state.settled && !isSame(subject, moment, state);
  // What is shown is not yet the answer to what is asked, also before the question is on its way.
  const [value, error] = subject === "" ? [null, null] : [state.value, state.error];
  return { value, error, subject: state.subject, ofNow: isLive(state.moment), late, busy: subject !== "" && (state.busy || late || !state.settled) };
}

/** Beside what is still of another moment; nothing gives way to it, and who is answered soon does not see it. */
export function Late({ when }: { when: boolean }) {
  return <div class="notices" role="status">{when && <p class="note late">Loading … this is still what was shown before.</p>}</div>;
}

export interface Page<T> {
  items: T[];
  metadata?: { continue?: string };
}

/** Pages that were asked for, the first at once; a question that changed begins again. */
export function usePages<T>(subject: string, moment: string, ask: (after: string | undefined, signal?: AbortSignal) => Promise<Page<T>>) {
  const first = useAnswer<Page<T>>(subject, moment, (signal) => ask(undefined, signal));
  const [more, setMore] = useState<{ of: Page<T> | null; pages: Page<T>[]; error: Error | null; busy: boolean }>({ of: null, pages: [], error: null, busy: false });
  // Further pages go on from the first one that is shown, and from no other.
  const own = more.of === first.value && first.value !== null ? more : null;
  const pages = [...(first.value ? [first.value] : []), ...(own?.pages ?? [])];
  const next = pages.at(-1)?.metadata?.continue;
  const shown = useRef(first.value);
  shown.current = first.value;
  const further = async () => {
    const of = first.value;
    const before = own?.pages ?? [];
    setMore({ of, pages: before, error: null, busy: true });
    const [page, error] = await ask(next).then((it) => [it, null] as const, (it: Error) => [null, it] as const);
    if (shown.current === of) setMore({ of, pages: page ? [...before, page] : before, error, busy: false });
  };
  /** What is shown and all that follows it, up to so many pages; and whether that is the end. */
  const everything = async (most: number): Promise<{ items: T[]; isWhole: boolean }> => {
    const items = pages.flatMap((it) => it.items);
    let after = next;
    for (let asked = 0; after && asked < most; asked++) {
      const page = await ask(after);
      items.push(...page.items);
      after = page.metadata?.continue;
    }
    return { items, isWhole: !after };
  };
  return {
    everything, items: pages.flatMap((it) => it.items), pages: pages.length, first: first.value, late: first.late,
    error: first.error ?? own?.error ?? null, busy: first.busy || (own?.busy ?? false), further: next ? further : null,
  };
}

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

/** `pending`: it has no answer yet. What follows it is shown only then, so that nothing moves from under the pointer. */
export function Card({ title, children, aside, pending = false }: {
  title: string; children: ComponentChildren; aside?: ComponentChildren; pending?: boolean;
}) {
  return (
    <section class={`card ${pending ? "pending" : ""}`} aria-label={title} aria-busy={pending}>
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

/** Whether the reader may do it, as the server says; null until it has said so. */
export function useMay(resource: string, act: string): boolean | null {
  const asked = useAnswer<{ status: { allowed: boolean } }>(`may ${resource}/${act}`, "", (signal) =>
    post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
      apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: { group: "volsched.io", resource, subresource: act, verb: "create" } },
    }, {}, signal));
  return asked.value?.status.allowed ?? (asked.error ? false : null);
}

/** An act of an operator: nothing is done without a reason, which goes into the log. */
export function Act({ path, acts, done }: { path: string; acts: Record<string, string>; done?: () => void }) {
  const [said, setSaid] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  return (
    <form class="act" onSubmit={async (event) => {
      event.preventDefault();
      const field = event.currentTarget.elements.namedItem("reason") as HTMLInputElement;
      const act = (event.submitter as HTMLButtonElement).value;
      const reason = field.value.trim();
      if (!reason) return setSaid("Say why: it is kept with what is done.");
      setBusy(true);
      try {
        setSaid((await post<{ message: string }>(own(`${path}/${act}`), { reason })).message);
        field.value = "";
        done?.();
      } catch (error) {
        const isUnknown = error instanceof ApiError && error.code === NO_ANSWER;
        setSaid(`${(error as Error).message}${isUnknown ? ": whether it was done is not known; look before you repeat it" : ""}`);
      } finally {
        setBusy(false);
      }
    }}>
      <input name="reason" required placeholder="reason, for the log" aria-label="Reason" autocomplete="off" />
      {Object.entries(acts).map(([act, title]) => <button type="submit" value={act} disabled={busy}>{title}</button>)}
      {said && <p role="status" class="note">{said}</p>}
    </form>
  );
}
