/** The log, searched: by a word, an actor, a kind, a type, a time; the latest first, and as a file. */
import { useEffect, useState } from "preact/hooks";
import { get, own } from "../api";
import type { LogEntry } from "../lanes";
import { amend, at, place } from "../route";
import { Card, Table, Trouble, useAnswer } from "../ui";
import { EventList, isFailure } from "./ObjectPage";

interface Page { items: LogEntry[]; metadata?: { continue?: string } }
const FIELDS: [string, string, string][] = [
  ["text", "Word", "disk-7, shop/data-0 …"], ["actor", "Actor", "scheduler, cli/…"], ["kind", "Kind", "pv, pvc, pod"],
  ["type", "Type", "BindingMoved …"], ["since", "Since", "2h, a time"], ["until", "Until", "now"],
];
const QUESTIONS: [string, string][] = [
  ["interventions", "By hand"], ["rollbacks", "Undone"], ["handovers", "Handed on"], ["orphans", "Left behind"], ["reads", "Who looked"],
];

export function AuditPage() {
  const { query } = place.value;
  const [more, setMore] = useState<{ key: string; pages: Page[] }>({ key: "", pages: [] });
  const asked = Object.fromEntries(FIELDS.map(([name]) => [name, query[name]]));
  const key = JSON.stringify([asked, at.value, query.q]);
  useEffect(() => {
    document.title = "Audit · volsched";
  }, []);
  const search = (after?: string) => get<Page>(own("/audit/events"), { ...asked, until: asked.until ?? at.value, limit: 100, continue: after });
  const found = useAnswer<Page | null>(key, () => (query.q ? Promise.resolve(null) : search()));
  const pages = [...(found.value ? [found.value] : []), ...(more.key === key ? more.pages : [])];
  const failuresOnly = query.failures === "1";
  const items = pages.flatMap((it) => it.items).filter((it) => !failuresOnly || isFailure(it));
  const next = pages.at(-1)?.metadata?.continue;
  return (
    <article class="audit-page">
      <h1>Audit <span class="quiet small">every search is itself recorded</span></h1>
      <form class="filters card" role="search" onSubmit={(event) => {
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
      {query.q ? <QuestionRows name={query.q} /> : (
        <Card title={`${items.length}${next ? "+" : ""} events`} aside={<>
          <label><input type="checkbox" checked={failuresOnly} onChange={() => amend({ failures: failuresOnly ? null : "1" })} /> failures only</label>
          <button type="button" disabled={items.length === 0} onClick={() => save("events.jsonl", items.map((it) => JSON.stringify(it)).join("\n"))}>Export</button>
        </>}>
          {found.error && <Trouble error={found.error} what="The search" />}
          <EventList items={items} />
          {next && <button type="button" onClick={async () => setMore({ key, pages: [...(more.key === key ? more.pages : []), await search(next)] })}>Earlier ones</button>}
        </Card>
      )}
    </article>
  );
}

function QuestionRows({ name }: { name: string }) {
  const found = useAnswer<{ items: Record<string, unknown>[] }>(`audit ${name}`, (signal) => get(own(`/audit/${name}`), {}, signal));
  if (found.error) return <Trouble error={found.error} what="The answer" />;
  const items = found.value?.items ?? [];
  const columns = Object.keys(items[0] ?? {}).filter((it) => it !== "data" || typeof items[0]![it] === "string").slice(0, 8);
  return (
    <Card title={`${items.length} rows`} aside={<button type="button" disabled={items.length === 0} onClick={() => save(`${name}.jsonl`, items.map((it) => JSON.stringify(it)).join("\n"))}>Export</button>}>
      <Table label={name} head={columns} rows={items.map((it) => columns.map((column) => told(it[column])))} empty="nothing of that" />
    </Card>
  );
}

const told = (value: unknown) => (value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));

export function save(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([`${text}\n`], { type: "application/x-ndjson" }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  URL.revokeObjectURL(address);
}
