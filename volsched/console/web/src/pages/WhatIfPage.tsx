/** Drain, lose or add something in thought: who moves, who is stranded and by which volume, before and after. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, own, post, type VolumeMap } from "../api";
import { count } from "../format";
import { head } from "../live";
import { manifests } from "../manifests";
import { nothingKnown, remember, sizeFor, type Known } from "../map/layout";
import { MapCanvas, type Marks } from "../map/MapCanvas";
import { amend, at, link, place } from "../route";
import { Card, Ref, Table, Trouble, useAnswer } from "../ui";

interface Moved { pod: string; from: string | null; to: string; bindings: { claim: string; volume: string }[] }
interface Held { claim: string; volume: string | null; domain: string; size: string; why: string; reachedFrom: string[] }
interface StrandedPod { pod: string; from: string | null; message: string; claims: Held[] }
export interface Simulation {
  scenario: string[];
  evicted: { pod: string; from: string }[];
  placed: Moved[];
  stranded: StrandedPod[];
  short: { class: string; domain: string; why: string; claims: number; size: string }[];
  stays: string[];
  gone: string[];
}

const KINDS = ["drain", "node", "zone"];

export function WhatIfPage() {
  const { query } = place.value;
  const then = at.value;
  const map = useAnswer<VolumeMap>(`whatif ${query.by}`, then ?? `live ${head.value}`, (signal) => get(own("/map"), { by: query.by, asOf: then }, signal));
  // What is tried is in the address; manifests are not, they may hold what is secret.
  const named = KINDS.find((it) => query[it]);
  const which = named ? query[named]! : "";
  const [pasted, setPasted] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  const tried = named ?? (pasted === null ? "" : "add");
  const outcome = useAnswer<Simulation>(tried && `${tried} ${which} ${turn}`, then ?? "live", async (signal) =>
    post<Simulation>(own("/simulate"), await scenario(tried, which, pasted ?? ""), { asOf: then }, signal));
  const [after, setAfter] = useState(true);
  const [kind, setKind] = useState<string>(named ?? "drain");
  const [name, setName] = useState(which);
  const [text, setText] = useState("");
  const known = useRef<Known>(nothingKnown());
  useEffect(() => {
    document.title = "What if · volsched";
  }, []);
  useEffect(() => {
    // An address that a colleague sent, or that was gone back to, fills the form as well.
    if (!named) return;
    setKind(named);
    setName(which);
    setPasted(null);
  }, [named, which]);
  const nodes = useMemo(() => (map.value?.nodes ?? []).map((it) => it.name), [map.value]);
  const zones = useMemo(() => [...new Set((map.value?.groups ?? []).filter((it) => it.path.length === 1).map((it) => it.path[0]!))], [map.value]);
  const options = kind === "zone" ? zones : nodes;
  const chosen = kind === "add" ? "" : name || options[0] || "";
  const submit = () => {
    if (kind === "add") setPasted(text);
    setTurn(turn + 1);
    amend(Object.fromEntries(KINDS.map((it) => [it, it === kind ? chosen : null])), true);
  };
  // The answer to another question, or of another moment, is none to this one.
  const told = outcome.late ? null : outcome.value;
  const marks = useMemo(() => (map.value && told && after ? marksOf(map.value, told, tried, which) : new Map()) as Marks, [map.value, told, after]);
  if (map.value) remember(known.current, map.value);
  return (
    <article class="whatif-page">
      <h1>What if <span class="quiet small">tried in memory on what {then === null ? "is there now" : "was there then"}; nothing is changed</span></h1>
      <form class="filters card" onSubmit={(event) => { event.preventDefault(); submit(); }}>
        <label>What
          <select value={kind} onChange={(event) => { setKind(event.currentTarget.value); setName(""); }}>
            <option value="drain">drain a node</option>
            <option value="node">lose a node</option>
            <option value="zone">lose a zone</option>
            <option value="add">add manifests</option>
          </select>
        </label>
        {kind !== "add" && (
          <label>Which
            <input list="names" value={chosen} onInput={(event) => setName(event.currentTarget.value)} />
            <datalist id="names">{options.map((it) => <option value={it} />)}</datalist>
          </label>
        )}
        {kind === "add" && <label class="grow">Manifests, as YAML or JSON<textarea value={text} rows={4} onInput={(event) => setText(event.currentTarget.value)} placeholder={"apiVersion: v1\nkind: Pod\n…"} /></label>}
        <button type="submit" class="primary" disabled={outcome.busy && tried !== ""}>{outcome.busy && tried !== "" ? "Trying …" : "Try it"}</button>
      </form>
      {outcome.error && !outcome.late && <Trouble error={outcome.error} what="The attempt" />}
      {tried && !told && outcome.busy && <div class="verdict-row"><p class="verdict" role="status">Trying …</p></div>}
      {told && (
        <div class="verdict-row">
          <p class={told.stranded.length ? "verdict wrong" : "verdict good"} role="status">
            If we {told.scenario.join(", ")}: {count(told.evicted.length, "pod")} must leave, {told.placed.length} {told.placed.length === 1 ? "finds" : "find"} {told.evicted.length ? "another" : "a"} node, <strong>{told.stranded.length} {told.stranded.length === 1 ? "is" : "are"} stranded</strong>.
          </p>
          <div class="buttons" role="group" aria-label="Map">
            <button type="button" aria-pressed={!after} onClick={() => setAfter(false)}>Before</button>
            <button type="button" aria-pressed={after} onClick={() => setAfter(true)}>After</button>
          </div>
          <ul class={`marks ${after ? "" : "blank"}`} aria-label="Marks on the map">
            <li><span class="mark mark-lost" aria-hidden="true">✕</span> gone or drained</li>
            <li><span class="mark mark-stranded" aria-hidden="true" /> volume that strands its pod</li>
            <li><span class="mark mark-gains" aria-hidden="true" /> node that gets pods</li>
          </ul>
        </div>
      )}
      {map.value && (
        <MapCanvas map={map.value} known={known.current} size={sizeFor(map.value.nodes?.length ?? 0)} marks={marks}
          open={(cell, segment) => {
            if (segment?.volume) location.hash = link("volume", [segment.volume.name]);
            else if (cell.node) location.hash = link("node", [cell.label]);
          }}
          enter={(box) => { setKind("zone"); setName(box.path[0] ?? ""); }} />
      )}
      {told && <Outcome told={told} />}
      {map.error && !map.value && <Trouble error={map.error} what="The map" />}
    </article>
  );
}

function Outcome({ told }: { told: Simulation }) {
  return (
    <div data-testid="outcome">
      <div class="columns">
        <Card title={`Stranded (${told.stranded.length})`}>
          <ul class="plain" data-testid="stranded">
            {told.stranded.map((it) => (
              <li><Ref kind="pod" name={it.pod} /> <span class="quiet">was on {it.from ?? "no node"}</span>
                {it.claims.map((held) => (
                  <div class="small">{held.claim} {held.volume ? <>is on <Ref kind="volume" name={held.volume} /></> : `needs ${held.size}`}: {held.why}, {held.domain}
                    {held.reachedFrom.length > 0 && <> (reached from {held.reachedFrom.slice(0, 5).join(", ")} only)</>}</div>
                ))}
                {it.claims.length === 0 && <div class="small">{it.message}</div>}
              </li>
            ))}
          </ul>
        </Card>
        <Card title={`Move (${told.placed.length})`}>
          <Table label="Pods that move" head={["pod", "from", "to"]} rows={told.placed.map((it) => [<Ref kind="pod" name={it.pod} />, it.from ?? "–", <Ref kind="node" name={it.to} />])} empty="nobody" />
        </Card>
        {told.short.length > 0 && (
          <Card title="Storage that is missing">
            <Table label="Missing storage" head={["class", "where", "why", "claims", "size"]} rows={told.short.map((it) => [it.class, it.domain, it.why, it.claims, it.size])} />
          </Card>
        )}
      </div>
    </div>
  );
}

async function scenario(kind: string, name: string, text: string): Promise<Record<string, unknown>> {
  if (kind === "drain") return { drain: [name] };
  if (kind === "node") return { loseNodes: [name] };
  if (kind === "zone") return { loseZones: [name] };
  return { add: await manifests(text) };
}

export function marksOf(map: VolumeMap, told: Simulation, kind: string, name: string): Marks {
  const marks: Marks = new Map();
  for (const node of map.nodes ?? []) {
    const lost = kind === "zone" ? node.path[0] === name : kind !== "add" && node.name === name;
    if (lost) marks.set(`node/${node.name}`, "lost");
  }
  for (const it of told.placed) marks.set(`node/${it.to}`, "gains");
  for (const it of told.stranded) for (const held of it.claims) if (held.volume) marks.set(`volume/${held.volume}`, "stranded");
  return marks;
}
