/** Why a pod waits, or is where it is, and what would help: each remedy was tried before it is told. */
import { Ref, Table } from "../ui";

interface Failure { rule: string; wanted: string; got: string }
interface Rejection { reason: string; claim?: string; failures?: Failure[]; misses?: { volume: string; failures: Failure[] }[] }
interface Placement { node: string; score?: number; bindings: { claim: string; volume: string; requested: string; capacity: string }[] }
export interface Remedy { changes: { kind: string; text: string }[]; node?: string | null; nodes?: string[] }
export interface Explanation {
  pod: string;
  node: string | null;
  fits: boolean;
  message?: string;
  asOf?: { position: number };
  chosen?: Placement | null;
  runnersUp?: { node: string; score: number }[];
  refused?: { plugin: string; reasons: string[]; count: number; nodes: string[]; details: { node: string; rejections: Rejection[] }[] }[];
  remedies?: Remedy[];
  stuck?: { why: string; remedies: string[] };
  failing?: { remedies?: (string | Remedy)[]; nodes: { node: string; message: string }[] } | null;
  past?: { outcome: string; message: string; times: number; reasons?: { reason: string; nodes: number; some: string[] }[] } | null;
}

export function ExplainView({ told }: { told: Explanation }) {
  return (
    <div data-testid="explain">
      <p class={told.fits ? "verdict good" : "verdict wrong"}>
        {told.node ? <>It is on <Ref kind="node" name={told.node} />.</>
          : told.fits ? <>It fits{told.chosen ? <> on <Ref kind="node" name={told.chosen.node} /></> : null}.</>
          : <>It has no node: {told.message ?? told.past?.message}</>}
      </p>
      {told.stuck && <p>{told.stuck.why}</p>}
      <Remedies told={told} />
      {told.failing && (
        <><h3>It keeps failing</h3><ul>{told.failing.nodes.map((it) => <li><Ref kind="node" name={it.node} />: {it.message}</li>)}</ul></>
      )}
      {told.chosen && told.chosen.bindings.length > 0 && (
        <Table label="Chosen volumes" head={["claim", "volume", "asked", "has"]}
          rows={told.chosen.bindings.map((it) => [<Ref kind="claim" name={it.claim} />, <Ref kind="volume" name={it.volume} />, it.requested, it.capacity])} />
      )}
      {(told.refused ?? []).map((group) => (
        <details key={`${group.plugin} ${group.reasons.join()}`}>
          <summary>{group.count} {group.count === 1 ? "node" : "nodes"}: {group.reasons.join("; ")} <span class="quiet">({group.plugin})</span></summary>
          {group.details.map((it) => (
            <div class="refusal">
              <h4><Ref kind="node" name={it.node} /></h4>
              {it.rejections.map((one) => (
                <ul>
                  <li>{one.claim ? <>claim <Ref kind="claim" name={one.claim} /></> : one.reason}
                    {one.failures?.map((failure) => <div class="small">{failure.rule}: wanted {failure.wanted}, got {failure.got}</div>)}
                    <ul>{one.misses?.map((miss) => (
                      <li><Ref kind="volume" name={miss.volume} />: {miss.failures.map((f) => `${f.rule}: wanted ${f.wanted}, got ${f.got}`).join("; ")}</li>
                    ))}</ul>
                  </li>
                </ul>
              ))}
            </div>
          ))}
        </details>
      ))}
    </div>
  );
}

function Remedies({ told }: { told: Explanation }) {
  const failing = (told.failing?.remedies ?? []).map((it) => (typeof it === "string" ? it : text(it)));
  const all = [...(told.remedies ?? []).map(text), ...failing, ...(told.stuck?.remedies ?? [])];
  if (all.length === 0) return null;
  return (
    <div class="remedies">
      <h3>Any one of these would help; each was tried, the smallest first</h3>
      <ol data-testid="remedies">{all.map((it) => <li>{it}</li>)}</ol>
    </div>
  );
}

function text(remedy: Remedy): string {
  const where = remedy.node ?? remedy.nodes?.[0];
  return `${remedy.changes.map((it) => it.text).join(", and ")}${where ? ` → ${where}` : ""}`;
}
