/** The log, searched: by a word, an actor, a kind, a type, a time; the latest first, and as a file. */
import { useEffect, useState } from "preact/hooks";
import { get, own } from "../api";
import { clock, count, micros } from "../format";
import type { LogEntry } from "../lanes";
import { amend, at, place } from "../route";
import { Card, Late, Ref, StreamRef, Table, Trouble, usePages } from "../ui";
import { EventList, isFailure } from "./ObjectPage";

const FIELDS: [string, string, string][] = [
  ["text", "Word", "disk-7 …"], ["actor", "Actor", "scheduler, cli/…"], ["kind", "Kind", "pv, pvc, pod"],
  ["type", "Type", "BindingMoved …"], ["since", "Since", "2h, a time"], ["until", "Until", "now"],
];
const QUESTIONS: [string, string][] = [
  ["interventions", "Interventions"], ["rollbacks", "Rollbacks"], ["handovers", "Handovers"], ["orphans", "Orphans"], ["reads", "Readers"],
];

export function AuditPage() {
  const { query } = place.value;
  const asked = Object.fromEntries(FIELDS.map(([name]) => [name, query[name]]));
  useEffect(() => {
    document.title = "Audit · volsched";
  }, []);
  return (
    <article class="audit-page">
      <h1>Audit <span class="quiet small">every search is itself recorded</span></h1>
      <form key={JSON.stringify(asked)} class="filters card" role="search" aria-label="The log" onSubmit={(event) => {
        event.preventDefault();
        const data = new FormData(event.currentTarget);
        amend({ q: null, ...Object.fromEntries(FIELDS.map(([name]) => [name, String(data.get(name) ?? "").trim() || null])) }, true);
      }}>
        {FIELDS.map(([name, title, hint]) => <label>{title}<input name={name} defaultValue={query[name] ?? ""} placeholder={hint} size={12} /></label>)}
        <button type="submit" class="primary">Search</button>
        <span class="spacer" />
        <div class="buttons" role="group" aria-label="Questions">
          {QUESTIONS.map(([name, title]) => <button type="button" aria-pressed={query.q === name} onClick={() => amend({ q: query.q === name ? null : name }, true)}>{title}</button>)}
        </div>
      </form>
      {query.q ? <QuestionRows key={query.q} name={query.q} /> : <Found asked={asked} failuresOnly={query.failures === "1"} />}
    </article>
  );
}

/** Failures are few: pages are looked through until so many are found. */
const FAILURES = 20;
const MOST_PAGES = 10;

function Found({ asked, failuresOnly }: { asked: Record<string, string | undefined>; failuresOnly: boolean }) {
  const found = usePages<LogEntry>(`search ${JSON.stringify(asked)}`, at.value ?? "live", (after, signal) =>
    get(own("/audit/events"), { ...asked, asOf: at.value, limit: 100, continue: after }, signal));
  const items = found.items.filter((it) => !failuresOnly || isFailure(it));
  const isShort = failuresOnly && items.length < FAILURES && found.pages < MOST_PAGES && found.further !== null && found.error === null;
  useEffect(() => {
    if (isShort && !found.busy) void found.further!();
  }, [isShort, found.busy]);
  const title = failuresOnly ? `${count(items.length, "failure")} among ${count(found.items.length, "event")}` : `${items.length}${found.further ? "+" : ""} events`;
  return (
    <Card title={title} aside={<>
      <label><input type="checkbox" checked={failuresOnly} onChange={() => amend({ failures: failuresOnly ? null : "1" })} /> failures only</label>
      <Export name="events.jsonl" disabled={found.busy || items.length === 0} take={async () => {
        const all = await found.everything(EXPORTED_PAGES);
        return { ...all, items: all.items.filter((it) => !failuresOnly || isFailure(it)) };
      }} />
    </>}>
      <Late when={found.late} />
      {found.error && <Trouble error={found.error} what="The search" />}
      {items.length === 0 && !found.busy && !found.error && <p class="quiet">nothing was found</p>}
      <EventList items={items} failuresOnly={failuresOnly} />
      {found.further && <button type="button" disabled={found.busy} onClick={found.further}>Earlier ones</button>}
    </Card>
  );
}

/** A file is of all that was found, and not of what was scrolled to; a browser's memory has an end. */
const EXPORTED_PAGES = 200;

function Export({ name, disabled, take }: { name: string; disabled: boolean; take: () => Promise<{ items: unknown[]; isWhole: boolean }> }) {
  const [told, setTold] = useState("");
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    setTold("");
    try {
      const { items, isWhole } = await take();
      save(name, items);
      setTold(`${count(items.length, "row")}${isWhole ? "" : ", and there are more: narrow the search"}`);
    } catch (error) {
      setTold(`not exported: ${(error as Error).message}`);
    } finally {
      setBusy(false);
    }
  };
  return <>
    <span role="status">{told}</span>
    <button type="button" disabled={disabled || busy} onClick={() => void run()}>{busy ? "Exporting …" : "Export"}</button>
  </>;
}

type Row = Record<string, unknown>;

function QuestionRows({ name }: { name: string }) {
  const found = usePages<Row>(`audit ${name}`, at.value ?? "live", (after, signal) => get(own(`/audit/${name}`), { asOf: at.value, continue: after }, signal));
  if (found.error && !found.first) return <Trouble error={found.error} what="The answer" />;
  const { items } = found;
  const columns = Object.keys(items[0] ?? {}).filter((it) => items.some((row) => isTold(row[it]))).slice(0, 8);
  const isEvents = name === "interventions";
  return (
    <Card title={`${count(items.length, "row")}${found.further ? " and more" : ""}`} aside={<Export name={`${name}.jsonl`} disabled={items.length === 0} take={() => found.everything(EXPORTED_PAGES)} />}>
      <Late when={found.late} />
      {found.error && <Trouble error={found.error} what="Further rows" />}
      {name === "orphans" && at.value !== null && <p class="note">Orphans are looked for now only; no past moment has them.</p>}
      {isEvents ? <EventList items={items as unknown as LogEntry[]} />
        : <Table label={name} head={columns.map(words)} rows={items.map((it) => columns.map((column) => <Value column={column} value={it[column]} />))} empty={found.busy ? "…" : "nothing of that"} />}
      {found.further && <button type="button" disabled={found.busy} onClick={found.further}>Earlier ones</button>}
    </Card>
  );
}

const isTold = (value: unknown) => value !== null && value !== undefined && typeof value !== "object";
const words = (column: string) => column.replace(/[A-Z]/g, (it) => ` ${it.toLowerCase()}`);
const KINDS = ["binding", "pod", "node", "claim", "volume"];

function Value({ column, value }: { column: string; value: unknown }) {
  if (!isTold(value)) return <>–</>;
  const text = String(value);
  if (KINDS.includes(column)) return <Ref kind={column} name={text} />;
  if (column === "object") return <StreamRef stream={text} />;
  if (/^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text)) return <span class="time">{clock(micros(text))}</span>;
  return <>{value === true ? "yes" : value === false ? "no" : text}</>;
}

export function save(name: string, items: unknown[]): void {
  const text = items.map((it) => JSON.stringify(it)).join("\n");
  const address = URL.createObjectURL(new Blob([`${text}\n`], { type: "application/x-ndjson" }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  URL.revokeObjectURL(address);
}
