/** The map page: groups, nodes and volumes at a moment, filters, totals beside it, and what differs. */
import { useEffect, useMemo, useRef } from "preact/hooks";
import { get, own, type MapVolume, type VolumeMap } from "../api";
import { bytes, count } from "../format";
import { head } from "../live";
import { amend, at, link, namespace, place, versus } from "../route";
import { Card, Late, Ref, StateMark, Table, Trouble, useAnswer } from "../ui";
import { changesBetween, type VolumeChange } from "./changes";
import { byName, nothingKnown, remember, sizeFor, STATES, type Known, type Size } from "./layout";
import { MapCanvas, type Marks } from "./MapCanvas";

const LISTED = 300;
/** Differences, and pods of one volume. */
const TOLD = 100;
const PODS = 4;
/** As many labels as the server groups by. */
const LEVELS = 4;
const SIZES: readonly Size[] = ["large", "medium", "small"];
const FILTERS = ["by", "in", "class", "state", "text"];

export function mapQuery(query: Record<string, string>, asOf: string | null) {
  return { asOf, by: query.by, within: query.in, class: query.class, state: query.state, text: query.text };
}

export function MapPage() {
  const { query } = place.value;
  const asked = mapQuery(query, at.value);
  const scope = JSON.stringify([namespace.value, ...FILTERS.map((it) => query[it])]);
  const path = own("/map", namespace.value);
  // Live: asked at once, and again when the log has grown beyond the answer.
  const answer = useAnswer<VolumeMap>(scope, at.value ?? `live ${head.value}`, (signal) => get(path, asked, signal),
    { isFresh: (map) => map.head >= head.value });
  const compared = versus.value;
  const other = useAnswer<VolumeMap>(compared === null ? "" : scope, compared ?? "", (signal) => get(path, { ...asked, asOf: compared }, signal));
  const map = answer.value;
  // Only what was asked with the same filters can be compared, and keeps its place.
  const before = compared !== null && !other.late && other.subject === answer.subject ? other.value : null;
  const seen = useRef<{ scope: string; known: Known }>({ scope: "", known: nothingKnown() });
  if (seen.current.scope !== answer.subject) seen.current = { scope: answer.subject, known: nothingKnown() };
  if (map) remember(seen.current.known, map);
  if (before) remember(seen.current.known, before);
  const changes = useMemo(() => (map && before ? changesBetween(before, map) : null), [map, before]);
  const marks: Marks = useMemo(() => {
    const all = changes ?? [];
    return new Map(all.map((it) => [map?.volumes ? `volume/${it.name}` : `node/${it.name}`, "changed" as const]));
  }, [changes]);
  useEffect(() => {
    document.title = "Map · volsched";
  }, []);

  if (!map) {
    if (!answer.error) return <p class="note" role="status">Drawing the map …</p>;
    const filtered = FILTERS.some((it) => query[it]);
    return <>
      <Trouble error={answer.error} what="The map" />
      {filtered && <button type="button" onClick={() => amend(Object.fromEntries(FILTERS.map((it) => [it, null])), true)}>Without filters</button>}
    </>;
  }
  const size = SIZES.find((it) => it === query.size) ?? sizeFor(map.nodes?.length ?? map.groups.length);
  return (
    <div class={`map-page ${answer.busy ? "busy" : ""}`} data-position={map.position}>
      <div class="map-main">
        <h1 class="unseen">Map of volumes</h1>
        <Filters map={map} size={size} />
        <Crumbs within={query.in ?? ""} map={map} />
        <Late when={answer.late} />
        {query.view === "list"
          ? <VolumeList map={map} />
          : <MapCanvas map={map} known={seen.current.known} size={size} marks={marks}
              open={(cell, segment) => {
                if (segment?.volume) location.hash = link("volume", [segment.volume.name]);
                else if (cell.node && cell.id.startsWith("node/")) location.hash = link("node", [cell.label]);
                else if (cell.path.length) amend({ in: cell.path.join("/") }, true);
              }}
              enter={(box) => amend({ in: box.path.join("/") }, true)} />}
      </div>
      <aside class="map-side" aria-label="Totals">
        {compared !== null && <Changes changes={changes} error={other.error} />}
        <Legend map={map} />
        <Totals map={map} />
        <Waiting map={map} />
      </aside>
    </div>
  );
}

function Filters({ map, size }: { map: VolumeMap; size: Size }) {
  const { query } = place.value;
  const classes = [...new Set(map.classes.map((it) => it.storageClass))].sort(byName);
  const levels = query.by ?? map.by.join(",");
  const labels = [...new Set([...map.by, ...map.labels])];
  const chosen = levels.split(",");
  const set = (name: string) => (event: { currentTarget: HTMLSelectElement | HTMLInputElement }) =>
    amend({ [name]: event.currentTarget.value || null });
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()} aria-label="Filters">
      {Array.from({ length: Math.min(LEVELS, labels.length, chosen.length + 1) }, (_, level) => (
        <label>{level === 0 ? "Group by" : "then"}
          <select value={chosen[level] ?? ""} onChange={(event) => {
            const next = [...chosen];
            next[level] = event.currentTarget.value;
            if (!next[level]) next.length = level;
            amend({ by: next.filter(Boolean).join(",") || null, in: null });
          }}>
            {level > 0 && <option value="">–</option>}
            {labels.filter((it) => it === chosen[level] || !chosen.includes(it)).map((it) => <option value={it}>{it.split("/").at(-1)}</option>)}
          </select>
        </label>
      ))}
      <label>Class
        <select value={query.class ?? ""} onChange={set("class")}>
          <option value="">all</option>
          {classes.map((it) => <option>{it}</option>)}
        </select>
      </label>
      <label>State
        <select value={query.state ?? ""} onChange={set("state")}>
          <option value="">all</option>
          {STATES.map((it) => <option>{it}</option>)}
        </select>
      </label>
      <label>Namespace
        <input value={namespace.value} onChange={set("ns")} placeholder="all" size={8} />
      </label>
      <label>Search
        <input type="search" value={query.text ?? ""} onChange={set("text")} placeholder="volume, claim …" size={14} />
      </label>
      <span class="spacer" />
      <div class="buttons" role="group" aria-label="Size of nodes">
        {SIZES.map((it) => (
          <button type="button" aria-pressed={size === it && query.view !== "list"} onClick={() => amend({ size: it, view: null })}>
            {{ large: "Names", medium: "Compact", small: "Overview" }[it]}
          </button>
        ))}
        <button type="button" aria-pressed={query.view === "list"} onClick={() => amend({ view: query.view === "list" ? null : "list" })}>List</button>
      </div>
    </form>
  );
}

function Crumbs({ within, map }: { within: string; map: VolumeMap }) {
  if (!within) return null;
  const parts = within.split("/");
  return (
    <nav class="crumbs" aria-label="Group">
      <button type="button" class="linkish" onClick={() => amend({ in: null })}>everything</button>
      {parts.map((it, i) => (
        <> › <button type="button" class="linkish" onClick={() => amend({ in: parts.slice(0, i + 1).join("/") })}>{it}</button></>
      ))}
      <span class="quiet"> {count(map.nodes?.length ?? 0, "node")}</span>
    </nav>
  );
}

function Legend({ map }: { map: VolumeMap }) {
  const all = map.groups[0]?.states ?? {};
  return (
    <Card title="States">
      <ul class="legend">
        {STATES.map((it) => (
          <li class={all[it] ? "" : "none"}>
            <button type="button" class="linkish" onClick={() => amend({ state: place.value.query.state === it ? null : it })}>
              <span class={`swatch swatch-${it}`} aria-hidden="true" /> {it}
            </button>
            <span>{(all[it]?.volumes ?? 0).toLocaleString("en")}</span><span class="quiet">{bytes(all[it]?.bytes ?? 0)}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Totals({ map }: { map: VolumeMap }) {
  return (
    <Card title="By class and place">
      <ul class="totals">
        {map.classes.map((it) => {
          const size = (state: string) => it.states[state]?.bytes ?? 0;
          const all = STATES.reduce((sum, state) => sum + size(state), 0) || 1;
          return (
            <li>
              <div class="total-head">
                <span><button type="button" class="linkish" onClick={() => amend({ class: it.storageClass })}>{it.storageClass}</button>
                  <span class="quiet"> in {it.group === "-" ? "no single place" : it.group}</span></span>
                <span>{bytes(all)}</span>
              </div>
              <div class="stack" role="img" aria-label={STATES.filter(size).map((state) => `${state} ${bytes(size(state))}`).join(", ")}>
                {STATES.filter(size).map((state) => (
                  <span class={`swatch-${state}`} style={{ width: `${(100 * size(state)) / all}%` }} />
                ))}
              </div>
              <div class="quiet small">{bytes(it.requested)} promised of {bytes(size("bound") + size("assumed"))} taken · {bytes(size("free"))} free</div>
            </li>
          );
        })}
      </ul>
    </Card>
  );
}

function Waiting({ map }: { map: VolumeMap }) {
  if (map.waitingPods === 0) return null;
  return (
    <Card title={`${count(map.waitingPods, "pod")} without a node`}>
      <ul class="plain">
        {map.waiting.slice(0, 12).map((it) => (
          <li><Ref kind="pod" name={it.pod} /><div class="quiet small">{it.reason}</div></li>
        ))}
      </ul>
      {map.waitingPods > 12 && <p class="quiet">and {map.waitingPods - 12} more: <a href={link("now")}>by reason</a></p>}
    </Card>
  );
}

/** As high without an answer as with one. */
function Changes({ changes, error }: { changes: VolumeChange[] | null; error: Error | null }) {
  const title = changes ? (changes.length ? count(changes.length, "difference") : "The two moments do not differ") : "Comparing …";
  return (
    <Card title={title}>
      <ul class="plain changes" data-testid="changes" tabIndex={0} aria-label="Differences">
        {!changes && error && <li><Trouble error={error} what="The other moment" /></li>}
        {(changes ?? []).slice(0, TOLD).map((it) => (
          <li><Ref kind={it.node === it.name ? "node" : "volume"} name={it.name} />
            <div class="small"><span class="quiet">{it.before}</span> → {it.after}</div></li>
        ))}
        {changes && changes.length > TOLD && <li class="quiet">and {changes.length - TOLD} more: choose a group or search to see them</li>}
      </ul>
    </Card>
  );
}

function VolumeList({ map }: { map: VolumeMap }) {
  const volumes = map.volumes;
  if (volumes === null) {
    const nodes = map.nodes ?? [];
    return (
      <>
        <Table label="Nodes" head={["node", "place", "pods", "volumes"]} rows={nodes.slice(0, LISTED).map((it) => [
          <Ref kind="node" name={it.name} />, it.path.join(" / "), it.pods,
          Object.entries(it.states).map(([state, one]) => `${one!.volumes} ${state}`).join(", "),
        ])} empty="There are too many nodes to list; choose a group on the map." />
        <p class="note">{nodes.length > LISTED && <>The first {LISTED} of {nodes.length.toLocaleString("en")} nodes. </>}Search or choose a group: where there are few volumes they are listed one by one.</p>
      </>
    );
  }
  const row = (it: MapVolume) => [
    <Ref kind="volume" name={it.name} />, <StateMark state={it.state} />, bytes(it.bytes), it.storageClass,
    it.node ? <Ref kind="node" name={it.node} /> : it.reached ? `any node${it.path.length ? ` of ${it.path.join(" / ")}` : ""}` : "out of reach",
    <Ref kind="claim" name={it.claim} />, <>{it.pods.slice(0, PODS).map((pod) => <><Ref kind="pod" name={pod} /> </>)}
      {it.pods.length > PODS && <a class="quiet" href={link("claim", it.claim!.split("/"))}>and {it.pods.length - PODS} more</a>}</>,
  ];
  return (
    <>
      <Table label="Volumes" head={["volume", "state", "size", "class", "place", "claim", "pods"]}
        rows={[...volumes].sort((a, b) => byName(a.name, b.name)).slice(0, LISTED).map(row)} empty="no volumes" />
      {volumes.length > LISTED && <p class="note">The first {LISTED} of {volumes.length.toLocaleString("en")}; search or choose a group to see the others.</p>}
    </>
  );
}
