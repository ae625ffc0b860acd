/** The picture itself, on a canvas: only what is in view is drawn, so that its size does not matter. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { VolumeMap } from "../api";
import { bytes, count } from "../format";
import { boxAt, cellAt, GAP, HEAD, INSET, layOut, type Box, type Cell, type Known, type Layout, type Segment, type Size } from "./layout";

export type Marks = Map<string, "changed" | "lost" | "stranded" | "gains">;

interface Props {
  map: VolumeMap;
  known: Known;
  size: Size;
  marks: Marks;
  open: (cell: Cell, segment: Segment | null) => void;
  enter: (box: Box) => void;
}

const EMPTY: Layout = { cells: [], boxes: [], height: 0, lineHeight: 0 };

export function MapCanvas({ map, known, size, marks, open, enter }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [height, setHeight] = useState(0);
  const [pointer, setPointer] = useState<{ at: [number, number]; x: number; y: number } | null>(null);
  const [focusId, setFocusId] = useState("");
  // Nothing is laid out before it is known how wide the frame is.
  const layout = useMemo(() => (width > 0 ? layOut(map, known, width, size) : EMPTY), [map, known, known.version, width, size]);
  const groups = useMemo(() => new Map(map.groups.map((it) => [it.path.join("/"), it])), [map]);

  // What is under a resting pointer, and which node the keyboard is on, is looked up in the picture of now: time moves below both.
  const hovered = pointer && cellAt(layout, ...pointer.at);
  const hover = pointer && hovered && { ...pointer, text: words(hovered.cell, hovered.segment) };
  const focus = useMemo(() => layout.cells.findIndex((it) => it.id === focusId), [layout, focusId]);

  useLayoutEffect(() => {
    const element = frame.current!;
    const measured = () => {
      setWidth(element.clientWidth - 16);
      setHeight(element.clientHeight);
    };
    const observer = new ResizeObserver(measured);
    observer.observe(element);
    measured();
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = frame.current!;
    let queued = 0;
    const draw = () => {
      cancelAnimationFrame(queued);
      queued = requestAnimationFrame(() => paint(canvas.current!, element, layout, size, marks, focus, groups));
    };
    draw();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    element.addEventListener("scroll", draw, { passive: true });
    scheme.addEventListener("change", draw);
    return () => {
      cancelAnimationFrame(queued);
      element.removeEventListener("scroll", draw);
      scheme.removeEventListener("change", draw);
    };
  }, [layout, size, marks, focus, groups, height]);

  const at = (event: MouseEvent): [number, number] => {
    const box = canvas.current!.getBoundingClientRect();
    return [event.clientX - box.left - 8, event.clientY - box.top + frame.current!.scrollTop - 8];
  };
  const focused = layout.cells[focus];
  return (
    <div class="map-frame" ref={frame} tabIndex={0} role="application"
      aria-label={`Map: ${count(map.groups[0]?.nodes ?? 0, "node")}. Arrow keys move from node to node, Enter opens.`}
      onKeyDown={(event) => {
        const columns = columnsOf(layout, focus);
        const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
        if (by !== undefined && layout.cells.length > 0) {
          event.preventDefault();
          const next = Math.min(layout.cells.length - 1, Math.max(0, focus < 0 ? 0 : focus + by));
          setFocusId(layout.cells[next]!.id);
          reveal(frame.current!, layout.cells[next]!);
        } else if (event.key === "Enter" && focused) open(focused, null);
      }}
      onPointerLeave={() => setPointer(null)}
      onPointerMove={(event) => {
        const box = frame.current!.getBoundingClientRect();
        setPointer({ at: at(event), x: event.clientX - box.left, y: event.clientY - box.top + frame.current!.scrollTop });
      }}
      onClick={(event) => {
        const [x, y] = at(event);
        const found = cellAt(layout, x, y);
        const box = found ? null : boxAt(layout, x, y);
        if (found) open(found.cell, found.segment);
        else if (box) enter(box);
      }}>
      <canvas ref={canvas} class="map-canvas" aria-hidden="true" />
      <div class="map-space" style={{ height: `${layout.height + 16}px` }} />
      {hover && (
        <div class="tip" style={tipAt(hover, width, height, frame.current!.scrollTop)}>
          {hover.text.map((it, i) => (i === 0 ? <strong>{it}</strong> : <div>{it}</div>))}
        </div>
      )}
      <div class="unseen" aria-live="polite">{focused ? words(focused, null).join(", ") : ""}</div>
    </div>
  );
}

/** Beside the pointer, and above it where it would stand out of the frame. */
function tipAt(hover: { x: number; y: number; text: string[] }, width: number, height: number, scrolled: number): Record<string, string> {
  const tall = 16 + 18 * hover.text.length;
  const below = hover.y - scrolled + 16 + tall < height;
  return { left: `${Math.min(hover.x + 14, Math.max(0, width - 270))}px`, top: `${below ? hover.y + 16 : Math.max(scrolled, hover.y - tall - 6)}px` };
}

function words(cell: Cell, segment: Segment | null): string[] {
  const volume = segment?.volume;
  if (volume) {
    return [
      volume.name, `${volume.state} · ${bytes(volume.bytes)} · class ${volume.storageClass}`,
      ...(volume.claim ? [`claim ${volume.claim}`] : []),
      ...(volume.pods.length ? [`pod ${volume.pods.slice(0, 3).join(", ")}${volume.pods.length > 3 ? " …" : ""}`] : []),
      ...(volume.claim ? [`contents: ${(volume.data ?? "unknown, counts as dirty").toLowerCase()}`] : []),
      ...(volume.binding ? [`assumed by binding ${volume.binding}`] : []),
    ];
  }
  const counted = Object.entries(cell.states).map(([state, it]) => `${it!.volumes} ${state}, ${bytes(it!.bytes)}`);
  if (cell.kind !== "node" || cell.id.startsWith("group/")) return [cell.label, ...counted];
  if (cell.node === null) return [cell.label, "not there at this moment"];
  return [cell.label, count(cell.node.pods, "pod"), ...counted, ...(cell.node.schedulable ? [] : ["cordoned"])];
}

function columnsOf(layout: Layout, index: number): number {
  const here = layout.cells[Math.max(0, index)];
  const below = layout.cells.findIndex((it, i) => i > index && here !== undefined && it.y > here.y && it.x >= here.x);
  return below > index && index >= 0 ? below - index : 1;
}

function reveal(frame: HTMLElement, cell: Cell): void {
  if (cell.y < frame.scrollTop) frame.scrollTop = cell.y - 30;
  else if (cell.y + cell.h > frame.scrollTop + frame.clientHeight - 20) frame.scrollTop = cell.y + cell.h - frame.clientHeight + 40;
}

const MARK_COLOURS: Record<string, string> = { changed: "--ink", lost: "--wrong", stranded: "--wrong", gains: "--good" };

function paint(
  canvas: HTMLCanvasElement, frame: HTMLElement, layout: Layout, size: Size, marks: Marks, focus: number,
  groups: Map<string, VolumeMap["groups"][number]>,
): void {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height, scrollTop } = frame;
  if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d")!;
  const styles = getComputedStyle(frame);
  const colours = new Map<string, string>();
  const colour = (name: string) => {
    let found = colours.get(name);
    if (found === undefined) colours.set(name, (found = styles.getPropertyValue(name).trim()));
    return found;
  };
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.translate(8, 8 - scrollTop);
  const visible = (it: { y: number; h: number }) => it.y + it.h >= scrollTop - 20 && it.y <= scrollTop + height + 20;
  pen.textBaseline = "middle";
  for (const box of layout.boxes) if (visible(box)) paintBox(pen, box, colour, groups.get(box.path.join("/")));
  layout.cells.forEach((cell, i) => {
    if (visible(cell)) paintCell(pen, cell, size, layout.lineHeight, colour, marks, i === focus);
  });
  // Whose nodes these are can be read however far a large group is scrolled.
  for (const box of layout.boxes) {
    if (box.depth === 1 && box.y < scrollTop - 8 && box.y + box.h > scrollTop + 2 * box.labelHeight) {
      paintBox(pen, { ...box, y: scrollTop - 8, h: box.labelHeight + 4 }, colour, groups.get(box.path.join("/")));
    }
  }
}

type Colour = (name: string) => string;

function paintBox(
  pen: CanvasRenderingContext2D, box: Box, colour: Colour, group: VolumeMap["groups"][number] | undefined,
): void {
  pen.fillStyle = colour(box.depth === 1 ? "--group" : "--group-inner");
  pen.strokeStyle = colour("--line");
  rounded(pen, box.x, box.y, box.w, box.h, 8);
  pen.fill();
  pen.stroke();
  pen.fillStyle = colour("--ink");
  pen.font = `600 ${box.depth === 1 ? 13 : 12}px system-ui, sans-serif`;
  const name = fitted(pen, box.label, box.w - 16);
  pen.fillText(name, box.x + 9, box.y + 13);
  const used = pen.measureText(name).width + 20;
  const all = Object.values(group?.states ?? {});
  const [nodes, volumes] = [count(group?.nodes ?? 0, "node"), count(all.reduce((sum, it) => sum + it!.volumes, 0), "volume")];
  const room = bytes(all.reduce((sum, it) => sum + it!.bytes, 0));
  const shared = box.shared?.start ? `${box.shared.start}…${box.shared.end}` : "";
  const forms = [[shared, nodes, volumes, room], [shared, nodes, room], [shared, nodes], [shared], [nodes]];
  pen.fillStyle = colour("--quiet");
  pen.font = "11px system-ui, sans-serif";
  // The longest form that fits whole: half a word says nothing.
  const told = forms.map((it) => it.filter(Boolean).join(" · ")).find((it) => it && pen.measureText(it).width <= box.w - used - 8);
  if (group && told) pen.fillText(told, box.x + used, box.y + 13);
}

function paintCell(
  pen: CanvasRenderingContext2D, cell: Cell, size: Size, lineHeight: number, colour: Colour, marks: Marks, focused: boolean,
): void {
  const { x, y, w, h } = cell;
  const absent = cell.kind === "node" && cell.node === null && cell.id.startsWith("node/");
  const bar = size === "small" ? { y: y + 13, h: h - 14 } : size === "medium" ? { y: y + 14, h: h - 16 } : { y: y + HEAD, h: lineHeight - 2 };
  pen.globalAlpha = absent ? 0.35 : 1;
  pen.fillStyle = colour("--cell");
  pen.strokeStyle = colour("--line");
  pen.lineWidth = 1;
  rounded(pen, x, y, w, h, size === "small" ? 3 : 5);
  pen.fill();
  pen.stroke();
  const inset = size === "large" ? INSET : size === "medium" ? 2 : 1.5;
  for (const it of cell.segments) {
    const left = x + inset + it.from * (w - 2 * inset);
    const wide = Math.max(1, (it.to - it.from) * (w - 2 * inset) - (size === "small" ? 0.5 : 1.5));
    const top = bar.y + it.line * lineHeight;
    paintSegment(pen, it, left, top, wide, bar.h, colour, lineHeight);
    const mark = it.volume ? marks.get(`volume/${it.volume.name}`) : undefined;
    if (mark) outline(pen, left, top, wide, bar.h, colour(MARK_COLOURS[mark]!));
  }
  paintName(pen, cell, size, colour);
  pen.globalAlpha = 1;
  const mark = marks.get(cell.id);
  if (mark) outline(pen, x, y, w, h, colour(MARK_COLOURS[mark]!));
  if (mark === "lost") {
    // What it crosses out can still be read.
    pen.globalAlpha = 0.4;
    cross(pen, x, y, w, h, colour("--wrong"));
    pen.globalAlpha = 1;
  }
  if (focused) outline(pen, x - 1, y - 1, w + 2, h + 2, colour("--focus"));
}

function paintName(pen: CanvasRenderingContext2D, cell: Cell, size: Size, colour: Colour): void {
  const { x, y, w } = cell;
  const ink = colour(cell.node?.schedulable === false ? "--quiet" : "--ink");
  if (size === "small") {
    pen.fillStyle = ink;
    pen.font = "10px system-ui, sans-serif";
    pen.fillText(fitted(pen, cell.short, w - 3), x + 2, y + 7);
    return;
  }
  let room = w - 10;
  if (size === "large" && cell.node?.pods) {
    // By name, where all of them are known and fit.
    const names = cell.pods.map((it) => it.split("/").at(-1)).join(", ");
    pen.font = "11px system-ui, sans-serif";
    const isWhole = cell.pods.length === cell.node.pods && pen.measureText(names).width < w * 0.5;
    const pods = isWhole ? names : count(cell.node.pods, "pod");
    pen.fillStyle = colour("--quiet");
    pen.textAlign = "right";
    pen.fillText(pods, x + w - 6, y + 11);
    pen.textAlign = "left";
    room -= pen.measureText(pods).width + 8;
  }
  pen.fillStyle = ink;
  pen.font = `${size === "large" ? 12 : 10}px system-ui, sans-serif`;
  pen.fillText(nameIn(pen, cell.label, cell.short, room), x + (size === "large" ? 6 : 3), y + (size === "large" ? 11 : 7));
}

function paintSegment(
  pen: CanvasRenderingContext2D, it: Segment, x: number, y: number, w: number, h: number, colour: Colour, lineHeight: number,
): void {
  rounded(pen, x, y, w, h, Math.min(3, w / 2));
  if (it.state === GAP) {
    pen.strokeStyle = colour("--line");
    pen.setLineDash([2, 3]);
    pen.stroke();
    pen.setLineDash([]);
    return;
  }
  pen.fillStyle = colour(`--state-${it.state}`);
  pen.fill();
  if (it.state === "free") {
    pen.strokeStyle = colour("--state-free-line");
    pen.lineWidth = 1;
    pen.stroke();
  }
  if (lineHeight === 0 || !it.volume) return;
  const claim = lineHeight > 30 ? it.volume.claim : null;
  pen.fillStyle = colour(`--on-${it.state}`);
  pen.font = "11px system-ui, sans-serif";
  pen.fillText(nameIn(pen, it.volume.name, it.short, w - 7), x + 4, y + (claim ? h / 2 - 6.5 : h / 2 + 0.5));
  if (claim) {
    pen.font = "10px system-ui, sans-serif";
    pen.fillText(nameIn(pen, claim, it.claimShort, w - 7), x + 4, y + h / 2 + 7);
  }
}

/** Whole where there is room; else what tells it apart. */
function nameIn(pen: CanvasRenderingContext2D, name: string, short: string, width: number): string {
  if (name === short || pen.measureText(name).width <= width) return fitted(pen, name, width);
  return pen.measureText(`…${short}`).width <= width ? `…${short}` : fitted(pen, short, width);
}

function outline(pen: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, stroke: string): void {
  pen.strokeStyle = stroke;
  pen.lineWidth = 2.5;
  rounded(pen, x, y, w, h, 4);
  pen.stroke();
  pen.lineWidth = 1;
}

function cross(pen: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, stroke: string): void {
  pen.strokeStyle = stroke;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x + w, y + h);
  pen.moveTo(x + w, y);
  pen.lineTo(x, y + h);
  pen.stroke();
  pen.lineWidth = 1;
}

function rounded(pen: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, r: number): void {
  pen.beginPath();
  pen.roundRect(x, y, w, h, r);
}

/** Cut in the middle: names differ at both ends. */
function fitted(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  let kept = Math.floor((text.length * width) / Math.max(1, pen.measureText(text).width)) - 1;
  while (kept > 1) {
    const cut = `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(-Math.floor(kept / 2))}`;
    if (pen.measureText(cut).width <= width) return cut;
    kept -= 1;
  }
  return "";
}
