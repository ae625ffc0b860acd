/** Reports of drills, as `volsched drill run NAME -o json` saves them: read in the browser, and sent nowhere. */
import { useEffect, useState } from "preact/hooks";
import { count, duration } from "../format";
import { Card, Facts, Table } from "../ui";

export interface DrillReport {
  drill: string;
  about: string;
  passed: boolean;
  inconclusive: string;
  faults: Record<string, number>;
  in_flight: number;
  resumed: number;
  rolled_back: number;
  retained: Record<string, number>;
  double_binds: number;
  leaked: number;
  lost_pods: number;
  recovery_ms: { each: number[] };
  delays_ms: number[];
  invariants: { invariant: number; holds: string; violations: number }[];
  violations: string[];
  played_at: string;
  version: string;
  command: string;
  facts: Record<string, string>;
}

export function readReport(text: string): DrillReport {
  const given = JSON.parse(text);
  if (typeof given?.drill !== "string" || !Array.isArray(given.invariants)) throw new Error("this is no report of a drill");
  // Earlier versions saved less.
  const least = { about: "", inconclusive: "", faults: {}, retained: {}, violations: [], facts: {}, played_at: "", version: "", command: "" };
  return { ...least, ...given, recovery_ms: { each: given.recovery_ms?.each ?? [] } };
}

/** A violation is one, whatever else the drill did not reach. */
export function verdict(it: DrillReport): string {
  const failed = it.violations.length + (it.double_binds || 0) + (it.leaked || 0) + (it.lost_pods || 0) > 0;
  return failed ? "failed" : it.inconclusive ? "inconclusive" : "passed";
}

export function DrillsPage() {
  const [reports, setReports] = useState<DrillReport[]>([]);
  const [wrong, setWrong] = useState<string[]>([]);
  useEffect(() => {
    document.title = "Drills · volsched";
  }, []);
  const open = async (files: File[]) => {
    const read = await Promise.all(files.map(async (file) => {
      try {
        return readReport(await file.text());
      } catch (error) {
        return `${file.name}: ${(error as Error).message}`;
      }
    }));
    const good = read.filter((it): it is DrillReport => typeof it !== "string");
    setWrong(read.filter((it): it is string => typeof it === "string"));
    setReports((before) => [...before, ...good].sort((a, b) => (b.played_at ?? "").localeCompare(a.played_at ?? "")));
  };
  return (
    <article class="drills-page">
      <h1>Drills <span class="quiet small">reports are read here, and sent nowhere</span></h1>
      <Card title="Open reports">
        <p>Play one and keep what it says: <code>volsched drill run kill-all -o json &gt; kill-all.json</code></p>
        <label>Files <input type="file" multiple accept=".json,application/json" onChange={(event) => void open([...(event.currentTarget.files ?? [])])} /></label>
        {wrong.map((it) => <p class="note wrong" role="status">{it}; save one with <code>volsched drill run NAME -o json</code></p>)}
      </Card>
      {reports.length > 0 && (
        <Card title={`${count(reports.length, "report")}, ${reports.filter((it) => verdict(it) === "passed").length} passed`}>
          <Table label="Reports" head={["drill", "played", "version", "verdict", "in flight", "resumed", "rolled back", "recovery, longest"]} rows={reports.map((it) => [
            it.drill, it.played_at || "–", it.version || "–", <Verdict of={it} />, it.in_flight, it.resumed, it.rolled_back, longest(it.recovery_ms.each)])} />
        </Card>
      )}
      {reports.map((it) => <Report it={it} />)}
    </article>
  );
}

const longest = (times: number[]) => (times.length ? duration(Math.max(...times) / 1000) : "–");
const told = (counts: Record<string, number>) => Object.entries(counts).map(([name, times]) => `${times} × ${name}`).join(", ");

function Verdict({ of: it }: { of: DrillReport }) {
  const word = verdict(it);
  return <span class={`state state-${word === "passed" ? "committed" : word === "failed" ? "failed" : "pending"}`}>{word}</span>;
}

function Report({ it }: { it: DrillReport }) {
  return (
    <Card title={it.drill} aside={<Verdict of={it} />}>
      <p>{it.about}</p>
      {it.inconclusive && <p class="note">It proves nothing: {it.inconclusive}</p>}
      <Facts rows={[
        ["faults", told(it.faults)], ["bindings in flight", it.in_flight], ["resumed", it.resumed], ["rolled back", it.rolled_back],
        ["retained", told(it.retained)], ["double binds", it.double_binds], ["leaked", it.leaked], ["lost pods", it.lost_pods],
        ...Object.entries(it.facts ?? {}), ["again", it.command && <code>{it.command}</code>],
      ]} />
      {it.violations.length > 0 && <ul class="plain" data-testid="violations">{it.violations.map((one) => <li class="reason">{one}</li>)}</ul>}
      <details><summary>Invariants ({it.invariants.length})</summary>
        <Table label={`Invariants of ${it.drill}`} head={["number", "what holds", "violations"]} rows={it.invariants.map((one) => [one.invariant, one.holds, one.violations])} />
      </details>
    </Card>
  );
}
