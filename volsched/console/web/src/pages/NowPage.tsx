/** How things stand: in flight, waiting, given up, storage left, leases, integrity. */
import { useEffect, useState } from "preact/hooks";
import { get, own } from "../api";
import { ago, bytes, count, duration } from "../format";
import { head, now } from "../live";
import { link } from "../route";
import { Act, Card, Ref, StateMark, Table, Trouble, useAnswer, useMay } from "../ui";

interface Status {
  position: number;
  lastEventAt: string | null;
  pods: Record<string, number>;
  pending: { reason: string; pods: number }[];
  oldestPendingSince: string | null;
  bindings: { state: string; count: number; oldestPlannedAt: string | null }[];
  effects: { queue: string; state: string; count: number; firstDueAt: string | null }[];
  storage: { class: string; zone: string; volumes: number; bytes: Record<string, number> }[];
  leases: { name: string; holder: string; held: boolean; renewedAt: string | null }[];
}
interface Rows { items: Record<string, any>[] }

export function NowPage() {
  const key = `now ${head.value}`;
  const status = useAnswer<Status>(key, (signal) => get(own("/status"), {}, signal));
  const latency = useAnswer<Rows>("latency", (signal) => get(own("/audit/latency"), {}, signal));
  const rollbacks = useAnswer<Rows>("rollbacks", (signal) => get(own("/audit/rollbacks"), { limit: 10 }, signal));
  useEffect(() => {
    document.title = "Now · volsched";
  }, []);
  if (status.error) return <Trouble error={status.error} what="The state of the store" />;
  const it = status.value;
  if (!it) return <p class="note">…</p>;
  const waiting = it.pending.reduce((sum, one) => sum + one.pods, 0);
  const open = it.bindings.reduce((sum, one) => sum + one.count, 0);
  const parked = it.effects.filter((one) => one.state === "parked").reduce((sum, one) => sum + one.count, 0);
  return (
    <article class="now-page">
      <h1>Now <span class="quiet small">always the present, wherever the slider stands</span></h1>
      <div class="tiles">
        <Tile title="in flight" value={open} note={open ? `oldest ${ago(oldest(it.bindings.map((one) => one.oldestPlannedAt)), now.value)}` : "nothing is half done"} />
        <Tile title="pods wait" value={waiting} note={it.oldestPendingSince ? `oldest since ${ago(it.oldestPendingSince, now.value)}` : "nobody"} warn={waiting > 0} />
        <Tile title="given up" value={parked} note={parked ? "work that needs a decision" : "no parked work"} warn={parked > 0} />
        <Tile title="events" value={it.position} note={`the last ${ago(it.lastEventAt, now.value)}`} />
      </div>
      <div class="columns">
        <Card title="Waiting, by reason">
          <Table label="Waiting pods by reason" head={["pods", "reason"]} rows={it.pending.map((one) => [one.pods, one.reason])} empty="no pod waits" />
        </Card>
        <Card title="In flight">
          <Table label="Bindings in flight" head={["state", "bindings", "oldest"]} rows={it.bindings.map((one) => [<StateMark state={one.state} />, one.count, ago(one.oldestPlannedAt, now.value)])} empty="nothing" />
        </Card>
        <Card title="Storage by class and zone">
          <Table label="Storage" head={["class", "zone", "volumes", "free", "bound", "other", "room for new"]} rows={it.storage.map((one) => {
            const { free = 0, bound = 0, room = 0, ...rest } = one.bytes;
            return [one.class, one.zone, one.volumes, bytes(free), bytes(bound), bytes(Object.values(rest).reduce((a, b) => a + b, 0)), room ? bytes(room) : "–"];
          })} empty="no volumes" />
        </Card>
        <Card title="Time until bound">
          {latency.value ? <Table label="Latency" head={["class", "zone", "legs", "p50", "p99"]} rows={latency.value.items.map((one) => [
            one.class, one.zone, one.count, seconds(one.p50), seconds(one.p99)])} empty="nothing was bound yet" /> : latency.error && <Trouble error={latency.error} what="Latency" />}
        </Card>
        <Card title="Bindings that were undone">
          {rollbacks.value ? <Table label="Rollbacks" head={["binding", "pod", "node", "why"]} rows={rollbacks.value.items.map((one) => [
            <Ref kind="binding" name={one.binding} />, <Ref kind="pod" name={one.pod} />, <Ref kind="node" name={one.node} />, one.failedWhy ?? one.reason])} empty="none" />
            : rollbacks.error && <Trouble error={rollbacks.error} what="Rollbacks" />}
        </Card>
        <Parked parked={parked} />
        <Card title="Roles of which there is one">
          <Table label="Leases" head={["lease", "holder", "held", "renewed"]} rows={it.leases.map((one) => [one.name, one.holder, one.held ? "yes" : "no", ago(one.renewedAt, now.value)])} empty="nobody holds a lease" />
        </Card>
        <Integrity />
      </div>
    </article>
  );
}

function Tile({ title, value, note, warn }: { title: string; value: number; note: string; warn?: boolean }) {
  return <div class={`tile ${warn ? "warn" : ""}`}><div class="tile-value">{value.toLocaleString("en")}</div><div>{title}</div><div class="small quiet">{note}</div></div>;
}

const oldest = (times: (string | null)[]) => times.filter(Boolean).sort()[0] ?? null;
const seconds = (value: number | null) => (value === null || value === undefined ? "–" : value < 1 ? `${Math.round(value * 1000)} ms` : duration(value));

/** Work that was given up. Acting needs the operator's role, and a reason that goes into the log. */
function Parked({ parked }: { parked: number }) {
  const [done, setDone] = useState(0);
  const may = useMay("effects", "retry");
  const found = useAnswer<Rows>(`parked ${parked} ${done}`, (signal) => get(own("/effects"), { state: "parked" }, signal));
  return (
    <Card title="Work that was given up">
      {found.value?.items.length === 0 && <p class="quiet">none</p>}
      <ul class="plain">
        {found.value?.items.map((it) => (
          <li>
            <strong>{it.metadata.name}</strong> <span class="small quiet">{it.status?.error}</span>
            {may && <Act path={`/effects/${encodeURIComponent(it.metadata.name)}`} acts={{ retry: "Retry", cancel: "Cancel" }} done={() => setDone(done + 1)} />}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Integrity() {
  const [asked, setAsked] = useState(0);
  const found = useAnswer<{ ok: boolean; position: number; findings: Record<string, any>[] } | null>(`verify ${asked}`, (signal) =>
    asked ? get(own("/verify"), {}, signal) : Promise.resolve(null));
  return (
    <Card title="Integrity">
      {found.value && <p class={found.value.ok ? "verdict good" : "verdict wrong"} role="status">
        {found.value.ok ? `The log is whole up to event ${found.value.position}, and the views are what it says.` : count(found.value.findings.length, "finding")}</p>}
      {found.error && <Trouble error={found.error} what="The verification" />}
      <button type="button" onClick={() => setAsked(asked + 1)} disabled={asked > 0 && found.busy}>Verify the log</button>
      <p class="small quiet">Anchors outside the database prove more: <code>volsched verify --anchor</code>. <a href={link("audit")}>Who read the history</a></p>
    </Card>
  );
}
