/** What was done for a binding, as lanes: one for each leg, from assumed to bound or undone, and one for the whole. */

export interface LogEntry {
  position: number;
  at: string;
  object: string;
  type: string;
  actor: string;
  what: string;
  reason: string | null;
  binding: string | null;
  cause: number | null;
  causedBy: string | null;
  data: Record<string, unknown>;
}

export type Tone = "plan" | "step" | "done" | "undo" | "wrong" | "foreign";

export interface Step {
  position: number;
  at: string;
  label: string;
  tone: Tone;
  actor: string;
  reason: string | null;
}

export interface Lane {
  title: string;
  claim: string | null;
  volume: string | null;
  steps: Step[];
}

export interface Lanes {
  pod: string;
  node: string;
  lanes: Lane[];
  first: number;
  last: number;
  outcome: string;
  reason: string | null;
}

const TONES: Record<string, Tone> = {
  assumed: "plan", joined: "plan", prebinding: "plan",
  written: "step", bound: "done", committed: "done", binding: "step", confirmed: "step",
  releasing: "undo", released: "undo", retained: "undo", compensating: "undo", "rolled-back": "undo",
  voided: "wrong", failed: "wrong", parked: "wrong",
};

interface PlannedLeg {
  claim: string;
  volume?: string | null;
}

export function lanesOf(events: readonly LogEntry[], foreign: readonly LogEntry[] = []): Lanes | null {
  const plan = events.find((it) => it.type === "BindingPlanned");
  if (!plan) return null;
  const legs = plan.data.legs as PlannedLeg[];
  const lanes: Lane[] = legs.map((leg) => ({
    title: leg.claim,
    claim: leg.claim,
    volume: leg.volume ?? null,
    steps: [step(plan, "assumed", "plan")],
  }));
  const whole: Lane = { title: "binding", claim: null, volume: null, steps: [step(plan, "planned", "plan")] };
  let outcome = "open";
  let reason: string | null = null;
  for (const it of events) {
    const state = String(it.data.state ?? "");
    if (it.type === "LegMoved") {
      const lane = lanes[Number(it.data.leg)];
      lane?.steps.push(step(it, state, TONES[state] ?? "step"));
      if (lane && it.data.volume) lane.volume = String(it.data.volume);
    } else if (it.type === "BindingMoved") {
      whole.steps.push(step(it, state, TONES[state] ?? "step"));
      outcome = state;
      reason = it.reason ?? reason;
    }
  }
  for (const it of foreign) {
    const lane = lanes.find((one) => it.object === `volume/${one.volume}` || it.object === `claim/${one.claim}`);
    lane?.steps.push(step(it, `changed by ${it.actor}`, "foreign", it.what));
  }
  const all = [whole, ...lanes];
  for (const lane of all) lane.steps.sort((a, b) => a.position - b.position);
  const places = all.flatMap((lane) => lane.steps.map((it) => it.position));
  return {
    pod: String(plan.data.pod), node: String(plan.data.node), lanes: all,
    first: Math.min(...places), last: Math.max(...places), outcome, reason,
  };
}

function step(entry: LogEntry, label: string, tone: Tone, reason?: string): Step {
  return {
    position: entry.position, at: entry.at, label, tone, actor: entry.actor, reason: reason ?? entry.reason,
  };
}
