/** How things stand: in flight, waiting, given up, storage left, leases, integrity. */
import { useEffect, useState } from "preact/hooks";
import { get, own } from "../api";
import { ago, bytes, clock, count, duration, micros } from "../format";
import { failures, head, now, timeline } from "../live";
import { at, link } from "../route";
import { Act, Card, Facts, Late, Ref, StateMark, Table, Trouble, useAnswer, useMay } from "../ui";

interface Status {
  position: number;
  lastEventAt: string | null;
  pods: Record<string, number>;
  pending: { reason: string; pods: number }[];
  oldestPendingSince: string | null;
  bindings: { state: string; count: number; oldestPlannedAt: string | null }[];
  effects: { queue: string; state: string; count: number; firstDueAt: string | null }[];
  storage: { class: string; zone: string; volumes: number; bytes: Record<string, number> }[];
  integrity?: {
    verified: { position: number; at: string; ok: boolean } | null;
    anchor: { position: number; at: string | null; failing: boolean } | null;
  };
  leases: { name: string; holder: string; held: boolean; renewedAt: string | null }[];
}
interface Rows { items: Record<string, any>[] }

export function NowPage() {
  const then = at.value;
  const [verified, setVerified] = useState(0);
  const status = useAnswer<Status>("now", then ?? `live ${head.value} ${verified}`, (signal) => get(own("/status"), { asOf: then }, signal));
  const it = status.value;
  // Asked again when a binding failed, or storage or pods changed, and not whenever the log grew: each look at these is
  // recorded in the log, which would grow by it for ever.
  const bound = it ? JSON.stringify([it.pods, it.storage, it.bindings.map((one) => [one.state, one.count])]) : "";
  const latency = useAnswer<Rows>(it ? "latency" : "", then ?? `live ${bound}`, (signal) => get(own("/audit/latency"), { until: then }, signal));
  const rollbacks = useAnswer<Rows>(timeline.value ? "rollbacks" : "", then ?? `live ${failures.value.length}`, (signal) => get(own("/audit/rollbacks"), { limit: 10, until: then }, signal));
  useEffect(() => {
    document.title = "Now · volsched";
  }, []);
  const failed = status.error && <Trouble error={status.error} what="The state of the store" />;
  if (!it) return failed || <p class="note">…</p>;
  // Ages are counted to the moment that is shown, which may still be the one before.
  const isNow = status.ofNow;
  const moment = isNow ? now.value : Date.parse(it.lastEventAt ?? "");
  const waiting = it.pending.reduce((sum, one) => sum + one.pods, 0);
  const open = it.bindings.reduce((sum, one) => sum + one.count, 0);
  const parked = it.effects.filter((one) => one.state === "parked").reduce((sum, one) => sum + one.count, 0);
  const due = it.effects.filter((one) => one.state !== "parked");
  return (
    <article class={`now-page ${status.busy ? "busy" : ""}`}>
      <div class="notices">{failed}</div>
      <Late when={status.late} />
      <h1>{isNow ? "Now" : <>Then <span class="quiet small">as the log says; queues, leases and verifications are kept beside it, and shown for now only</span></>}</h1>
      <div class="tiles">
        <Tile title="in flight" value={open} note={open ? `oldest ${ago(oldest(it.bindings.map((one) => one.oldestPlannedAt)), moment)}` : "nothing is half done"} />
        <Tile title={waiting === 1 ? "pod waits" : "pods wait"} value={waiting} note={it.oldestPendingSince ? `oldest ${ago(it.oldestPendingSince, moment)}` : "none waits"} warn={waiting > 0} />
        <Tile title="parked" value={parked} note={parked ? "work that needs a decision" : "no work was given up"} warn={parked > 0} />
        <Tile title="events" value={it.position} note={isNow ? `the last ${ago(it.lastEventAt, moment)}` : `at ${clock(micros(it.lastEventAt))}`} />
      </div>
      <div class="columns">
        <Card title="Pending pods by reason">
          <Table label="Waiting pods by reason" head={["pods", "reason"]} rows={it.pending.map((one) => [one.pods, one.reason])} empty="no pod waits" />
        </Card>
        <InFlight bindings={it.bindings} moment={moment} isNow={isNow} />
        <Card title="Capacity by class and zone">
          <Table label="Storage" head={["class", "zone", "volumes", "free", "bound", "other", "room for new"]} rows={it.storage.map((one) => {
            const { free = 0, bound = 0, room = 0, ...rest } = one.bytes;
            return [one.class, one.zone, one.volumes, bytes(free), bytes(bound), bytes(Object.values(rest).reduce((a, b) => a + b, 0)), room ? bytes(room) : "–"];
          })} empty="no volumes" />
        </Card>
        {isNow && <Card title="Queues and lag">
          <Table label="Queues" head={["queue", "state", "items", "behind"]} rows={due.map((one) => [one.queue, one.state, one.count, late(one.firstDueAt, moment)])} empty="nothing waits: no lag" />
        </Card>}
        {isNow && <Card title="Leases">
          <Table label="Leases" head={["lease", "holder", "held", "renewed"]} rows={it.leases.map((one) => [one.name, one.holder, one.held ? "yes" : "no", ago(one.renewedAt, moment)])} empty="no lease is held" />
        </Card>}
        {isNow && <Parked parked={parked} />}
        {isNow && it.integrity && <Integrity integrity={it.integrity} position={it.position} done={() => setVerified(verified + 1)} />}
        <Card title="Time until bound" pending={latency.value === null && !latency.error}>
          {latency.value ? <Table label="Latency" head={["class", "zone", "legs", "p50", "p99"]} rows={latency.value.items.map((one) => [
            one.class, one.zone, one.count, seconds(one.p50), seconds(one.p99)])} empty="nothing was bound yet" /> : latency.error && <Trouble error={latency.error} what="Latency" />}
        </Card>
        <Card title="Rollbacks, the latest" pending={rollbacks.value === null && !rollbacks.error}>
          {rollbacks.value ? <Table label="Rollbacks" head={["binding", "pod", "node", "why"]} rows={rollbacks.value.items.map((one) => [
            <Ref kind="binding" name={one.binding} />, <Ref kind="pod" name={one.pod} />, <Ref kind="node" name={one.node} />, one.failedWhy ?? one.reason])} empty="none" />
            : rollbacks.error && <Trouble error={rollbacks.error} what="Rollbacks" />}
        </Card>
      </div>
    </article>
  );
}

function Tile({ title, value, note, warn }: { title: string; value: number; note: string; warn?: boolean }) {
  return <div class={`tile ${warn ? "warn" : ""}`}><div class="tile-value">{value.toLocaleString("en")}</div><div>{title}</div><div class="small quiet">{note}</div></div>;
}

const late = (due: string | null, moment: number) => (due && Date.parse(due) < moment ? duration((moment - Date.parse(due)) / 1000) : "not yet due");
const oldest = (times: (string | null)[]) => times.filter(Boolean).sort()[0] ?? null;
const seconds = (value: number | null) => (value === null || value === undefined ? "–" : value < 1 ? `${Math.round(value * 1000)} ms` : duration(value));

const NAMED = 5;

/** How many are under way, and of now which: the oldest of each state. */
function InFlight({ bindings, moment, isNow }: { bindings: Status["bindings"]; moment: number; isNow: boolean }) {
  const states = isNow ? bindings.map((one) => one.state) : [];
  const named = useAnswer<[string, Rows][]>(states.length ? "in flight" : "", `live ${JSON.stringify(bindings)}`, (signal) =>
    Promise.all(states.map(async (state): Promise<[string, Rows]> => [state, await get<Rows>(own("/bindings"), { state, limit: NAMED }, signal)])));
  const found = new Map(named.value ?? []);
  return (
    <Card title="In flight" pending={states.length > 0 && named.value === null && !named.error}>
      <Table label="Bindings in flight" head={isNow ? ["state", "bindings", "oldest", "which"] : ["state", "bindings", "oldest"]} rows={bindings.map((one) => [
        <StateMark state={one.state} />, one.count, ago(one.oldestPlannedAt, moment),
        ...(isNow ? [<>{(found.get(one.state)?.items ?? []).map(({ status }) => <div key={status.id}><Ref kind="binding" name={status.id} /> <span class="quiet">for</span> <Ref kind="pod" name={status.pod} /></div>)}</>] : []),
      ])} empty="nothing" />
    </Card>
  );
}

/** Work that was given up. Acting needs the operator's role, and a reason that goes into the log. */
function Parked({ parked }: { parked: number }) {
  const [done, setDone] = useState(0);
  const may = useMay("effects", "retry");
  const found = useAnswer<Rows>("parked", `live ${parked} ${done}`, (signal) => get(own("/effects"), { state: "parked" }, signal));
  return (
    <Card title="Parked work" pending={(found.value === null && !found.error) || may === null}>
      {found.error && <Trouble error={found.error} what="Parked work" />}
      {found.value?.items.length === 0 && <p class="quiet">none</p>}
      <ul class="plain">
        {found.value?.items.map((it) => (
          // A reason that is being written stays with what it was begun for.
          <li key={it.metadata.name}>
            <strong>{it.metadata.name}</strong> <span class="small quiet">{it.status?.error}</span>
            {may && <Act path={`/effects/${encodeURIComponent(it.metadata.name)}`} acts={{ retry: "Retry", cancel: "Cancel" }} done={() => setDone(done + 1)} />}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Integrity({ integrity, position, done }: { integrity: NonNullable<Status["integrity"]>; position: number; done: () => void }) {
  const [asked, setAsked] = useState(0);
  const found = useAnswer<{ ok: boolean; position: number; findings: Record<string, any>[] } | null>(asked ? `verify ${asked}` : "", "", async (signal) => {
    const told = await get<{ ok: boolean; position: number; findings: Record<string, any>[] }>(own("/verify"), {}, signal);
    done();
    return told;
  }, { once: true });
  const { verified, anchor } = integrity;
  return (
    <Card title="Integrity">
      <Facts rows={[
        ["last verified", verified ? <>{ago(verified.at, now.value)}, up to event {verified.position.toLocaleString("en")}{verified.ok ? "" : <strong class="reason"> with findings</strong>}</> : "never"],
        ["last anchor outside", anchor?.at ? <>{ago(anchor.at, now.value)}, {count(position - anchor.position, "event")} since{anchor.failing && <strong class="reason"> · the latest could not be written</strong>}</> : anchor?.failing ? <strong class="reason">could not be written</strong> : "none: anchors are not turned on"],
      ]} />
      <button type="button" onClick={() => setAsked(asked + 1)} disabled={found.busy}>{found.busy ? "Verifying …" : "Verify the log"}</button>
      {found.value && !found.late && <p class={found.value.ok ? "verdict good" : "verdict wrong"} role="status">
        {found.value.ok ? `The log is whole up to event ${found.value.position}, and the views are what it says.` : count(found.value.findings.length, "finding")}</p>}
      {found.error && !found.late && <Trouble error={found.error} what="The verification" />}
      <p class="small quiet">Anchors outside the database prove more: <code>volsched verify --anchor</code>. <a href={link("audit", [], { q: "reads" })}>Who read the history</a></p>
    </Card>
  );
}
