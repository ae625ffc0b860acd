/** The time slider: the log's density, bindings that failed, buttons, a field to type into, play, compare, live. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { bars, placeOfPosition, placeOfTime, positionAt, positionOfTime, timeOfPosition } from "./axis";
import { clock, duration } from "./format";
import { axis, failures, goTo, head, heard, now, parseMoment, parseRange, position, positionOf, shownAt, subject, timeline, whole } from "./live";
import { amend, at, range, versus } from "./route";

const PARTS = 160;
const PLAY_MILLISECONDS = 700;

export function TimeBar() {
  const [dragged, setDragged] = useState<number | null>(null);
  const [playing, setPlaying] = useState(false);
  const rest = useRef<number | undefined>(undefined);
  // Where the hand rests is gone to a little later; whoever has gone elsewhere since is not called back.
  const forget = () => {
    window.clearTimeout(rest.current);
    setDragged(null);
  };
  const went = useRef<string | null>(null);
  useEffect(() => {
    if (at.value !== went.current) forget();
  }, [at.value]);
  useEffect(() => () => window.clearTimeout(rest.current), []);
  const shown = dragged ?? position.value;
  const isLive = at.value === null && dragged === null;

  const choose = (wanted: number, soon = false) => {
    setDragged(wanted);
    window.clearTimeout(rest.current);
    // Each look into the past is recorded in the log: one for a rest of the hand, none for what it passes over.
    rest.current = window.setTimeout(() => {
      goTo(wanted, !soon);
      went.current = at.value;
      setDragged(null);
    }, soon ? 0 : 180);
  };
  const step = (by: number) => {
    setPlaying(false);
    const moments = subject.value?.points.map((it) => it[0]);
    const next = moments && (by > 0 ? moments.find((it) => it > shown) : moments.findLast((it) => it < shown));
    if (!moments) choose(Math.min(head.value, Math.max(axis.value.points[0]?.[0] ?? 1, shown + by)), true);
    else if (next !== undefined) choose(next, true);
  };
  const stepFailure = (direction: 1 | -1) => {
    const here = timeOfPosition(whole.value, shown);
    const places = failures.value.map((it) => positionOfTime(whole.value, it.at));
    const next = direction > 0 ? places.find((it, i) => failures.value[i]!.at > here && it > shown)
      : places.findLast((it) => it < shown);
    if (next !== undefined) choose(next, true);
  };

  useEffect(() => {
    if (!playing) return;
    const share = placeOfPosition(axis.value, position.value);
    const timer = window.setTimeout(() => {
      const next = Math.max(position.value + 1, positionAt(axis.value, share + 1 / 120));
      const end = axis.value.points.at(-1)?.[0] ?? head.value;
      if (next >= end && end < head.value) {
        setPlaying(false);
        goTo(end);
      } else if (next >= head.value) {
        setPlaying(false);
        goTo(null);
      } else goTo(next);
    }, PLAY_MILLISECONDS);
    return () => window.clearTimeout(timer);
  }, [playing, position.value]);

  const play = () => {
    const [first, last] = [axis.value.points[0]?.[0] ?? 1, axis.value.points.at(-1)?.[0] ?? head.value];
    if (!playing && (at.value === null || position.value < first || position.value >= last)) goTo(first);
    setPlaying(!playing);
  };
  return (
    // Its room is kept before its first answer: nothing above it moves when that is there.
    <footer class={`timebar ${timeline.value ? "" : "unknown"}`} aria-label="Time" aria-busy={timeline.value === null}>
      <div class="timebar-row">
        <div class="buttons" role="group" aria-label="Move through time">
          <button type="button" onClick={() => stepFailure(-1)} title="Previous failed binding" aria-label="Previous failed binding">⇤</button>
          <button type="button" onClick={() => step(-1)} title="One event back" aria-label="One event back">‹</button>
          <button type="button" onClick={play} class="wide" aria-pressed={playing}>{playing ? "Pause" : "Play"}</button>
          <button type="button" onClick={() => step(1)} title="One event on" aria-label="One event on">›</button>
          <button type="button" onClick={() => stepFailure(1)} title="Next failed binding" aria-label="Next failed binding">⇥</button>
        </div>
        <MomentField />
        <output class="moment" aria-live="polite">
          <strong>{clock(dragged === null ? shownAt.value : timeOfPosition(whole.value, dragged))}</strong>
          <span class="quiet"> UTC · event {shown.toLocaleString("en")} of {head.value.toLocaleString("en")}</span>
        </output>
        <span class="spacer" />
        <RangeButtons />
        <CompareButton />
        <LiveButton isLive={isLive} stop={() => { setPlaying(false); forget(); }} />
      </div>
      <RangeStrip />
      <div class="slider">
        <Density shown={shown} />
        <input
          type="range" class="slider-input" aria-label="Moment of the log" min={0} max={1000} step={1}
          value={Math.round(placeOfPosition(axis.value, shown) * 1000)}
          aria-valuetext={`${clock(timeOfPosition(whole.value, shown))} UTC, event ${shown}`}
          onInput={(event) => { setPlaying(false); choose(positionAt(axis.value, Number(event.currentTarget.value) / 1000)); }}
          onKeyDown={(event) => {
            const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
            if (by === undefined) return;
            event.preventDefault();
            step(by);
          }}
        />
      </div>
    </footer>
  );
}

function MomentField() {
  const [wrong, setWrong] = useState(false);
  return (
    <form class="moment-field" onSubmit={(event) => {
      event.preventDefault();
      const field = event.currentTarget.elements.namedItem("moment") as HTMLInputElement;
      const part = parseRange(field.value);
      const wanted = part ? undefined : parseMoment(field.value);
      setWrong(!part && wanted === undefined);
      if (part) {
        amend(part, true);
        field.value = "";
      }
      if (wanted !== undefined) {
        goTo(wanted, true);
        field.value = "";
      }
    }}>
      <input name="moment" aria-label="Go to a time, an event or 2h ago" placeholder="time, event, 2h, 2h..1h" aria-invalid={wrong}
        title={wrong ? "Write 2026-11-18 01:30, 1234, 2h, now, or a range: 2h..1h" : "2026-11-18 01:30, 1234, 2h, now, or a range: 2h..1h"} autocomplete="off" />
    </form>
  );
}

function CompareButton() {
  const other = versus.value;
  if (other !== null) {
    return (
      <button type="button" class="wide active" onClick={() => amend({ vs: null })} title="Stop comparing">
        Against {clock(timeOfPosition(whole.value, positionOf(other)), false)} ✕
      </button>
    );
  }
  return (
    <button type="button" class="wide" onClick={() => amend({ vs: String(position.value) })}
      title="Remember this moment, then move to another: what differs is shown">
      Compare from here
    </button>
  );
}

function LiveButton({ isLive, stop }: { isLive: boolean; stop: () => void }) {
  const silent = Math.max(0, (now.value - heard.value) / 1000);
  const behind = timeline.value?.heardAt ? (now.value * 1000 - timeline.value.heardAt) / 1e6 : silent;
  const isBehind = behind >= 4;
  const lag = !isBehind ? "up to date" : `${duration(behind)} behind`;
  return (
    <button type="button" class={`wide live ${isLive ? (isBehind ? "on behind" : "on") : ""}`} aria-pressed={isLive}
      onClick={() => { stop(); amend({ at: null, from: null, to: null }, true); }} title={isLive ? "It follows the log" : "Back to now"}>
      <span class="dot" aria-hidden="true" /> {isLive ? `Live · ${lag}` : "Go live"}
    </button>
  );
}

/** A part of the log fills the whole slider: around the moment that is shown, and back to all of it. */
function RangeButtons() {
  const line = axis.value;
  const narrow = () => {
    const middle = placeOfPosition(line, position.value);
    const start = Math.min(0.75, Math.max(0, middle - 0.125));
    amend({ from: String(positionAt(line, start)), to: String(positionAt(line, start + 0.25)) }, true);
  };
  const few = (line.points.at(-1)?.[0] ?? 0) - (line.points[0]?.[0] ?? 0) < 8;
  return (
    <div class="buttons" role="group" aria-label="Range of the slider">
      <button type="button" onClick={narrow} disabled={few || subject.value !== null} title="A quarter of the slider, around this moment, becomes all of it">Narrow</button>
      {range.value && <button type="button" class="active" onClick={() => amend({ from: null, to: null }, true)}>Whole log</button>}
    </div>
  );
}

/** Drag over the strip to pick a range. What it does, the buttons and the field do too: it is for the pointer alone. */
function RangeStrip() {
  const [picked, setPicked] = useState<{ from: number; to: number } | null>(null);
  const share = (event: JSX.TargetedPointerEvent<HTMLDivElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const line = axis.value;
  const [first, last] = [line.points[0]?.[1] ?? 0, line.points.at(-1)?.[1] ?? 0];
  return (
    <div class="range-strip" data-testid="range" title="Drag to pick a range"
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        setPicked({ from: share(event), to: share(event) });
      }}
      onPointerMove={(event) => picked && setPicked({ ...picked, to: share(event) })}
      onPointerCancel={() => setPicked(null)}
      onPointerUp={() => {
        if (!picked) return;
        const [from, to] = [picked.from, picked.to].sort((a, b) => a - b).map((it) => positionAt(line, it)) as [number, number];
        setPicked(null);
        if (to > from && Math.abs(picked.to - picked.from) > 0.005) amend({ from: String(from), to: String(to) }, true);
      }}>
      <span>{clock(first)}</span>
      <span class="range-notes">
        {at.value !== null && <span class="past" role="status">You look at the past<span class="more">; who looks is recorded in the log</span></span>}
        {subject.value && <span>moments of {subject.value.name} alone</span>}
      </span>
      <span>{clock(last)}</span>
      {picked && <div class="range-picked" style={{ left: `${100 * Math.min(picked.from, picked.to)}%`, width: `${100 * Math.abs(picked.to - picked.from)}%` }} />}
    </div>
  );
}

function Density({ shown }: { shown: number }) {
  const line = axis.value;
  const heights = bars(line, PARTS);
  const most = Math.max(1, ...heights);
  const other = versus.value;
  return (
    <svg class="density" viewBox={`0 0 ${PARTS * 6} 44`} preserveAspectRatio="none" aria-hidden="true">
      {line.pauses.map((it) => (
        <rect class="pause" x={it.from * PARTS * 6} width={Math.max(2, (it.to - it.from) * PARTS * 6)} y="0" height="44">
          <title>{duration(it.seconds)} without an event, folded</title>
        </rect>
      ))}
      {subject.value ? line.places.map((it) => <rect class="bar" x={it * (PARTS * 6 - 4)} width="4" y="12" height="30" />) : heights.map((it, i) => {
        const height = it > 0 ? Math.max(2, Math.sqrt(it / most) * 34) : 0;
        return <rect class="bar" x={i * 6 + 0.5} width="5" y={42 - height} height={height} />;
      })}
      {other !== null && <rect class="other" x={placeOfPosition(line, positionOf(other)) * PARTS * 6 - 1} width="2" y="0" height="44" />}
      {failures.value.filter((it) => it.at >= (line.points[0]?.[1] ?? 0) && it.at <= (line.points.at(-1)?.[1] ?? 0)).map((it) => (
        <rect class="failure" x={placeOfTime(line, it.at) * PARTS * 6 - 2} width="4" y="0" height="16" rx="1">
          <title>{`${it.pod}: ${it.reason ?? "undone"} (${clock(it.at)})`}</title>
        </rect>
      ))}
      <rect class="needle" x={placeOfPosition(line, shown) * PARTS * 6 - 1} width="2" y="0" height="44" />
    </svg>
  );
}
