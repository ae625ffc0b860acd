/** A pod, claim, volume, node or binding: what it is at the moment, why, and all that happened to it. */
import { Fragment } from "preact";
import { useEffect } from "preact/hooks";
import { ApiError, get, own, split, type VolumeMap } from "../api";
import { bytes, clock, duration, micros } from "../format";
import { lanesOf, type LogEntry } from "../lanes";
import { goTo, head, position, subject } from "../live";
import { amend, at, link, place } from "../route";
import { Act, Card, Facts, Late, Ref, StateMark, StreamRef, Table, Trouble, useAnswer, useMay, usePages, type Page } from "../ui";
import { ExplainView, type Explanation } from "./Explain";
import { LanesView } from "./Lanes";

const KINDS: Record<string, string> = { pod: "pods", claim: "pvc", volume: "pv", node: "nodes", binding: "binding" };
interface Leg { claim: string; volume: string | null; state: string; reason: string | null }
interface BindingDoc { id: string; pod: string; node: string; state: string; reason?: string; plannedAt: string; endedAt?: string; legs: Leg[] }
interface AttemptDoc { id: string; outcome: string; node?: string; count: number; lastAt: string; message?: string; reasons?: { reason: string; nodes: number; some: string[] }[] }
type Manifest = { metadata: Record<string, any>; spec?: Record<string, any>; status?: Record<string, any> };
interface Description {
  object: Manifest;
  bindings?: BindingDoc[];
  attempts?: AttemptDoc[];
  claims?: { claim: string; phase: string; volume?: string }[];
  usedBy?: string[];
  pods?: string[];
  events?: { type: string; reason: string; message: string; last: string; count: number; from: string }[];
}

export function ObjectPage() {
  const { page, rest } = place.value;
  const key = rest.join("/");
  const [namespace, name] = page === "pod" || page === "claim" ? split(key) : [null, key];
  const moment = at.value ?? `live ${head.value}`;
  const described = useAnswer<Description>(`${page}/${key}`, moment, (signal) =>
    get(own(`/describe/${KINDS[page]}/${encodeURIComponent(name)}`, namespace), { asOf: at.value }, signal));
  useEffect(() => {
    document.title = `${page} ${key} · volsched`;
  }, [page, key]);
  const doc = described.value;
  // History is asked again when the object or a binding of it moved, and not whenever the log grew: each look is
  // recorded in the log, which would grow by it for ever.
  const stamp = at.value ?? `live ${doc ? stampOf(doc) : ""}`;
  return (
    <article class={`object-page ${described.busy ? "busy" : ""}`}>
      <h1><span class="quiet">{page}</span> {key}</h1>
      <Late when={described.late} />
      {described.error && <Trouble error={described.error} what={`This ${page}`} />}
      {doc && page === "volume" && at.value === null && described.ofNow && ["Released", "Failed"].includes(doc.object.status?.phase) && <Release name={name} />}
      {doc && page !== "binding" && <Overview kind={page} name={key} doc={doc} />}
      {page === "binding" && <BindingView id={key} stamp={stamp} />}
      {page === "pod" && namespace && <ExplainCard namespace={namespace} name={name} moment={moment} />}
      {doc?.bindings && doc.bindings.length > 0 && <Bindings bindings={doc.bindings} />}
      {doc?.attempts && doc.attempts.length > 0 && <Attempts attempts={doc.attempts} />}
      {page === "node" && <VolumesOn node={name} moment={moment} />}
      {page === "volume" && (doc || described.error) && <FormerOwners name={name} stamp={stamp} />}
      {page !== "binding" && (doc || described.error) && <Timeline kind={KINDS[page]!} namespace={namespace} name={name} stamp={stamp} />}
      {doc?.events && doc.events.length > 0 && <KubernetesEvents events={doc.events} />}
      {doc && <details class="card"><summary>Manifest</summary><pre>{JSON.stringify(doc.object, null, 2)}</pre></details>}
    </article>
  );
}

const stampOf = (doc: Description) =>
  [doc.object.metadata?.resourceVersion, JSON.stringify(doc.object.status ?? {}), ...(doc.bindings ?? []).map((it) => `${it.id} ${it.state}`)].join(" ");

/** Acts are for operators, on the present alone, folded until somebody wants one. */
function Release({ name }: { name: string }) {
  const may = useMay("volumes", "release");
  if (!may) return may === null ? <span class="pending" /> : null;
  return (
    <details class="card"><summary>Release it</summary>
      <p>It becomes Available for any claim, with whatever data is on it. Nothing is wiped.</p>
      <Act path={`/volumes/${encodeURIComponent(name)}`} acts={{ release: "Release the volume" }} />
    </details>
  );
}

function Cancel({ id }: { id: string }) {
  const may = useMay("bindings", "cancel");
  if (!may) return may === null ? <span class="pending" /> : null;
  return (
    <details class="card"><summary>Cancel it</summary>
      <p>What it has written is undone; what may hold data is kept, and its pod is tried again.</p>
      <Act path={`/bindings/${encodeURIComponent(id)}`} acts={{ cancel: "Cancel the binding" }} />
    </details>
  );
}

function Overview({ kind, name, doc }: { kind: string; name: string; doc: Description }) {
  const { metadata, spec = {}, status = {} } = doc.object;
  const reference = spec.claimRef ? `${spec.claimRef.namespace}/${spec.claimRef.name}` : null;
  const common: [string, any][] = [["created", metadata.creationTimestamp && clock(micros(metadata.creationTimestamp))]];
  const rows: Record<string, [string, any][]> = {
    volume: [
      ["state", <StateMark state={status.phase ?? "Pending"} />], ["size", spec.capacity?.storage], ["class", spec.storageClassName],
      ["claim", reference && <Ref kind="claim" name={reference} />], ["reclaim policy", spec.persistentVolumeReclaimPolicy],
      ["place", placeOf(spec)],
    ],
    claim: [
      ["state", <StateMark state={status.phase ?? "Pending"} />], ["asks for", spec.resources?.requests?.storage], ["class", spec.storageClassName],
      ["volume", spec.volumeName && <Ref kind="volume" name={spec.volumeName} />], ["contents", status.dataState ?? "unknown, counts as dirty"],
      ["used by", doc.usedBy?.length ? doc.usedBy.map((it) => <><Ref kind="pod" name={it} /> </>) : "no pod"],
    ],
    pod: [
      ["state", <StateMark state={status.phase ?? "Pending"} />], ["node", spec.nodeName && <Ref kind="node" name={spec.nodeName} />],
      ["claims", doc.claims?.map((it) => (
        <div><Ref kind="claim" name={`${metadata.namespace}/${it.claim}`} /> {it.volume && <>→ <Ref kind="volume" name={it.volume} /></>} <span class="quiet">{it.phase}</span></div>
      ))],
    ],
    node: [
      ["cordoned", spec.unschedulable ? "yes" : null],
      ["place", Object.entries(metadata.labels ?? {}).filter(([it]) => it.includes("topology")).map(([label, value]) => `${label.split("/").at(-1)} ${value}`).join(", ")],
      ["pods", doc.pods?.length ? doc.pods.map((it) => <><Ref kind="pod" name={it} /> </>) : "none"],
      ["volumes", <a href={link("map", [], { text: name, view: "list" })}>on this node</a>],
      ["what if", <a href={link("whatif", [], { drain: name })}>it is drained</a>],
    ],
  };
  return <Card title="At this moment"><Facts rows={[...(rows[kind] ?? []), ...common]} /></Card>;
}

function placeOf(spec: Record<string, any>): string | null {
  const terms: any[] = spec.nodeAffinity?.required?.nodeSelectorTerms ?? [];
  const told = terms.map((term) => (term.matchExpressions ?? []).map((it: any) => `${it.key.split("/").at(-1)} ${it.operator === "In" ? "" : `${it.operator} `}${(it.values ?? []).join(", ")}`).join(" and "));
  return told.join(" or ") || null;
}

function ExplainCard({ namespace, name, moment }: { namespace: string; name: string; moment: string }) {
  const told = useAnswer<Explanation>(`explain ${namespace}/${name}`, moment, (signal) =>
    get(own(`/explain/${encodeURIComponent(name)}`, namespace), { asOf: at.value }, signal));
  return (
    <Card title="Why" pending={told.value === null && !told.error} aside={at.value !== null ? "as it was stored then; remedies are told live" : null}>
      {told.value ? <ExplainView told={told.value} /> : told.error ? <Trouble error={told.error} what="The explanation" /> : <p class="quiet">…</p>}
    </Card>
  );
}

function Bindings({ bindings }: { bindings: BindingDoc[] }) {
  return (
    <Card title="Bindings">
      <Table label="Bindings" head={["binding", "state", "pod", "node", "planned", "legs", "reason"]} rows={bindings.map((it) => [
        <Ref kind="binding" name={it.id} />, <StateMark state={it.state} />, <Ref kind="pod" name={it.pod} />, <Ref kind="node" name={it.node} />,
        clock(micros(it.plannedAt)),
        it.legs.map((leg) => <div class="small">{leg.claim} → {leg.volume ? <Ref kind="volume" name={leg.volume} /> : "a new volume"} <StateMark state={leg.state} /></div>),
        it.reason ?? "",
      ])} />
    </Card>
  );
}

function Attempts({ attempts }: { attempts: AttemptDoc[] }) {
  return (
    <Card title="Attempts">
      <Table label="Attempts" head={["when", "outcome", "node", "times", "why"]} rows={attempts.map((it) => [
        clock(micros(it.lastAt)), <StateMark state={it.outcome} />, <Ref kind="node" name={it.node} />, it.count,
        <>{it.message}{it.reasons?.map((one) => <div class="small quiet">{one.nodes} × {one.reason} ({one.some.join(", ")})</div>)}</>,
      ])} />
    </Card>
  );
}

function VolumesOn({ node, moment }: { node: string; moment: string }) {
  const found = useAnswer<VolumeMap>(`on ${node}`, moment, (signal) => get(own("/map"), { node, asOf: at.value }, signal));
  if (!found.value) return found.error ? <Trouble error={found.error} what="Its volumes" /> : <span class="pending" />;
  return (
    <Card title="Volumes on it">
      <Table label="Volumes of the node" empty="none" head={["volume", "state", "size", "class", "claim", "pods"]} rows={(found.value.volumes ?? []).map((it) => [
        <Ref kind="volume" name={it.name} />, <StateMark state={it.state} />, bytes(it.bytes), it.storageClass,
        <Ref kind="claim" name={it.claim} />, it.pods.length ? it.pods.map((pod) => <><Ref kind="pod" name={pod} /> </>) : "–"])} />
    </Card>
  );
}

function FormerOwners({ name, stamp }: { name: string; stamp: string }) {
  const found = useAnswer<Page<Record<string, string | null>>>(`owners ${name}`, stamp, (signal) =>
    get(own(`/audit/claims-of/${encodeURIComponent(name)}`), { asOf: at.value }, signal));
  return (
    <Card title="Whom it served" pending={found.value === null && !found.error}>
      {found.error && <Trouble error={found.error} what="Its past" />}
      {found.value && <Table label="Former owners" empty="nobody yet" head={["claim", "from", "until", "given by", "handed on", "reason"]}
        rows={found.value.items.map((it) => [
          <Ref kind="claim" name={it.claim} />, clock(micros(it.from)), it.until ? clock(micros(it.until)) : "still", it.by, it.data, it.reason ?? "",
        ])} />}
    </Card>
  );
}

const PAGE = 500;

function Timeline({ kind, namespace, name, stamp }: { kind: string; namespace: string | null; name: string; stamp: string }) {
  const { failures, notices, only: narrowed } = place.value.query;
  const [failuresOnly, noticesToo, only] = [failures === "1", notices === "1", narrowed === "1"];
  const found = usePages<LogEntry>(`history ${kind} ${namespace}/${name}`, stamp, (after, signal) =>
    get(own(`/history/${kind}/${encodeURIComponent(name)}`, namespace), { limit: PAGE, until: at.value, continue: after }, signal));
  const items = found.items.filter((it) =>
    (!failuresOnly || isFailure(it)) && (noticesToo || !it.object.startsWith("notice/")));
  return (
    <Card title="What happened" pending={found.first === null && !found.error} aside={(
      <>
        <label><input type="checkbox" checked={failuresOnly} onChange={() => amend({ failures: failuresOnly ? null : "1" })} /> failures only</label>
        <label><input type="checkbox" checked={noticesToo} onChange={() => amend({ notices: noticesToo ? null : "1" })} /> notices too</label>
        <label><input type="checkbox" checked={only} onChange={() => amend({ only: only ? null : "1" })} /> slider over these alone</label>
      </>
    )}>
      {only && <SliderOver kind={kind} namespace={namespace} name={name} />}
      {found.error && <Trouble error={found.error} what="Its history" />}
      {found.first && <EventList items={items} failuresOnly={failuresOnly} />}
      {found.first && items.length === 0 && <p class="quiet">{failuresOnly ? "no failures" : "nothing"}</p>}
      {found.further && <button type="button" disabled={found.busy} onClick={found.further}>More of them</button>}
    </Card>
  );
}

/** Narrows the time slider to the moments of one object, whichever of them is looked at. */
function SliderOver({ kind, namespace, name }: { kind: string; namespace: string | null; name: string }) {
  const found = useAnswer<Page<LogEntry>>(`moments ${kind} ${namespace}/${name}`, "", (signal) =>
    get(own(`/history/${kind}/${encodeURIComponent(name)}`, namespace), { limit: 500 }, signal));
  useEffect(() => {
    const points = (found.value?.items ?? []).map((it) => [it.position, micros(it.at)] as const).sort((a, b) => a[0] - b[0]);
    subject.value = points.length > 1 ? { name: namespace ? `${namespace}/${name}` : name, points } : null;
    return () => {
      subject.value = null;
    };
  }, [found.value]);
  return null;
}

export function isFailure(entry: LogEntry): boolean {
  return /Failed|Freed/.test(entry.type) || /compensating|rolled-back|voided|failed|lost|unschedulable/i.test(entry.what);
}

const IDLE_SECONDS = 600;
const idle = (one: LogEntry, other: LogEntry) => Math.abs(micros(one.at) - micros(other.at)) / 1e6;

export function EventList({ items, failuresOnly = false }: { items: LogEntry[]; failuresOnly?: boolean }) {
  return (
    <ol class="events" data-testid="events">
      {items.map((it, i) => (
        <Fragment key={it.position}>
        {i > 0 && idle(items[i - 1]!, it) >= IDLE_SECONDS && <li class="idle quiet small">{duration(idle(items[i - 1]!, it))} without {failuresOnly ? "a failure" : "an event"}</li>}
        <li class={`${isFailure(it) ? "wrong" : ""} ${it.position === position.value ? "here" : ""}`}>
          <button type="button" class="stamp" onClick={() => goTo(it.position, true)} title="Look at this moment">
            {clock(micros(it.at))} <span class="quiet">#{it.position}</span>
          </button>
          <div>
            <div>{it.what}{it.reason && <span class="reason"> — {it.reason}</span>}</div>
            <div class="small quiet">
              by {it.actor}{it.binding && <> for binding <Ref kind="binding" name={it.binding} /></>}
              {it.causedBy && <> · because of {it.causedBy}</>} · <StreamRef stream={it.object} />
            </div>
          </div>
        </li>
        </Fragment>
      ))}
    </ol>
  );
}

function KubernetesEvents({ events }: { events: NonNullable<Description["events"]> }) {
  return (
    <details class="card"><summary>Kubernetes events ({events.length})</summary>
      <Table label="Kubernetes events" head={["last", "type", "reason", "from", "message"]}
        rows={events.map((it) => [it.last, it.type, it.reason, it.from, it.message])} />
    </details>
  );
}

const ENDED = ["committed", "rolled-back"];

function BindingView({ id, stamp }: { id: string; stamp: string }) {
  const found = useAnswer(stamp === "live " ? "" : `lanes ${id}`, stamp, async (signal) => {
    const own_ = await get<Page<LogEntry>>(own(`/history/binding/${encodeURIComponent(id)}`), { limit: 500, until: at.value }, signal);
    return { events: own_.items, foreign: await foreignChanges(own_.items, signal) };
  });
  if (found.error) return <Trouble error={found.error} what="This binding" />;
  if (!found.value) return <p class="quiet pending">…</p>;
  const lanes = lanesOf(found.value.events, found.value.foreign);
  if (!lanes) return <p class="note">Its plan is archived.</p>;
  return (
    <>
      <Card title="What became of it">
        <Facts rows={[
          ["state", <StateMark state={lanes.outcome} />], ["pod", <Ref kind="pod" name={lanes.pod} />], ["node", <Ref kind="node" name={lanes.node} />],
          ["why", lanes.reason],
        ]} />
        <LanesView data={lanes} />
        {found.value.foreign.map((it) => (
          <p class="foreign-note" data-testid="foreign">Event #{it.position}: <strong>{it.actor}</strong> changed <StreamRef stream={it.object} /> in between: {it.what}</p>
        ))}
      </Card>
      {at.value === null && found.ofNow && !ENDED.includes(lanes.outcome) && <Cancel id={id} />}
      <Card title="Everything that was done for it"><EventList items={found.value.events} /></Card>
    </>
  );
}

/** What others wrote to the binding's volumes and claims while it was open: the reason of most conflicts. */
async function foreignChanges(events: LogEntry[], signal: AbortSignal): Promise<LogEntry[]> {
  const plan = events.find((it) => it.type === "BindingPlanned");
  const end = events.findLast((it) => it.type === "BindingMoved");
  if (!plan || !end || !["compensating", "rolled-back"].includes(String(end.data.state))) return [];
  const volumes = (plan.data.legs as { volume?: string }[]).flatMap((it) => (it.volume ? [it.volume] : []));
  const pages = await Promise.all(volumes.map((it) =>
    get<Page<LogEntry>>(own(`/history/pv/${encodeURIComponent(it)}`), { since: plan.position, until: end.position, limit: 100 }, signal)
      .catch((error: Error) => {
        if (error instanceof ApiError) return { items: [] };
        throw error;
      })));
  const id = plan.binding;
  return pages.flatMap((it) => it.items).filter((it) => it.binding !== id && /(Changed|Deleted)$/.test(it.type));
}
