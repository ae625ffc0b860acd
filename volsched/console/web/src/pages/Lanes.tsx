/** A binding's legs as lanes: what was done, in the order of the log, and where somebody else got in between. */
import type { Lanes as LanesData, Step } from "../lanes";
import { clock, micros } from "../format";
import { goTo } from "../live";
import { Ref } from "../ui";

export function LanesView({ data }: { data: LanesData }) {
  const positions = [...new Set(data.lanes.flatMap((lane) => lane.steps.map((it) => it.position)))].sort((a, b) => a - b);
  const column = new Map(positions.map((it, i) => [it, i]));
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Lanes of the binding">
      <ol class="lanes" style={{ "--columns": String(positions.length) } as Record<string, string>}>
        {data.lanes.map((lane) => (
          <li class="lane" aria-label={lane.title}>
            <div class="lane-title">
              {lane.claim ? <Ref kind="claim" name={lane.claim} /> : <strong>the binding</strong>}
              {lane.volume && <div class="small quiet">on <Ref kind="volume" name={lane.volume} /></div>}
            </div>
            <ol class="lane-track">
              {lane.steps.map((it) => (
                <li class={`step tone-${it.tone}`} style={{ gridColumn: `${column.get(it.position)! + 1} / span 1` }}>
                  <StepButton step={it} />
                </li>
              ))}
            </ol>
          </li>
        ))}
      </ol>
    </div>
  );
}

function StepButton({ step }: { step: Step }) {
  const when = clock(micros(step.at));
  return (
    <button type="button" onClick={() => goTo(step.position, true)}
      title={`${when} UTC, event ${step.position}, by ${step.actor}${step.reason ? `: ${step.reason}` : ""}`}>
      <span class="step-label">{step.label}</span>
      <span class="small">#{step.position} · {step.actor}</span>
      {step.reason && step.tone !== "plan" && <span class="step-reason">{step.reason}</span>}
    </button>
  );
}
