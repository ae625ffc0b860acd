/** The picture itself, on a canvas: only what is in view is drawn, so that its size does not matter. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { VolumeMap } from "../api";
import { bytes, count } from "../format";
import { boxAt, cellAt, layOut, type Box, type Cell, type Known, type Layout, type Segment, type Size } from "./layout";

export type Marks = Map<string, "changed" | "lost" | "stranded" | "gains">;

interface Props {
  map: VolumeMap;
  known: Known;
  size: Size;
  marks: Marks;
  open: (cell: Cell, segment: Segment | null) => void;
  enter: (box: Box) => void;
}

export function MapCanvas({ map, known, size, marks, open, enter }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<{ x: number; y: number; text: string[] } | null>(null);
  const [focus, setFocus] = useState(-1);
  const layout = useMemo(() => layOut(map, known, width, size), [map, known.size, width, size]);
  const groups = useMemo(() => new Map(map.groups.map((it) => [it.path.join("/"), it])), [map]);

  useEffect(() => {
    const element = frame.current!;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth - 16));
    observer.observe(element);
    setWidth(element.clientWidth - 16);
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
  }, [layout, size, marks, focus, groups]);

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
          setFocus(next);
          reveal(frame.current!, layout.cells[next]!);
        } else if (event.key === "Enter" && focused) open(focused, null);
      }}
      onPointerLeave={() => setHover(null)}
      onPointerMove={(event) => {
        const found = cellAt(layout, ...at(event));
        const box = frame.current!.getBoundingClientRect();
        setHover(found && { x: event.clientX - box.left, y: event.clientY - box.top + frame.current!.scrollTop, text: words(found.cell, found.segment) });
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
        <div class="tip" style={{ left: `${Math.min(hover.x + 14, Math.max(0, width - 230))}px`, top: `${hover.y + 16}px` }}>
          {hover.text.map((it, i) => (i === 0 ? <strong>{it}</strong> : <div>{it}</div>))}
        </div>
      )}
      <div class="unseen" aria-live="polite">{focused ? words(focused, null).join(", ") : ""}</div>
    </div>
  );
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
  const counted = Object.entries(cell.node?.states ?? {}).map(([state, it]) => `${it!.volumes} ${state}, ${bytes(it!.bytes)}`);
  if (cell.kind !== "node") return [cell.label, count(cell.segments.length, "volume")];
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
    if (visible(cell)) paintCell(pen, cell, size, colour, marks, i === focus);
  });
}

type Colour = (name: string) => string;

function paintBox(pen: CanvasRenderingContext2D, box: Box, colour: Colour, group: VolumeMap["groups"][number] | undefined): void {
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
  if (group && box.w - used > 60) {
    const all = Object.values(group.states);
    const size = all.reduce((sum, it) => sum + it!.bytes, 0);
    const volumes = all.reduce((sum, it) => sum + it!.volumes, 0);
    pen.fillStyle = colour("--quiet");
    pen.font = "11px system-ui, sans-serif";
    const long = `${count(group.nodes, "node")} · ${count(volumes, "volume")} · ${bytes(size)}`;
    pen.fillText(fitted(pen, long, box.w - used - 8), box.x + used, box.y + 13);
  }
}

function paintCell(pen: CanvasRenderingContext2D, cell: Cell, size: Size, colour: Colour, marks: Marks, focused: boolean): void {
  const { x, y, w, h } = cell;
  const absent = cell.kind === "node" && cell.node === null && cell.id.startsWith("node/");
  const bar = size === "small" ? { y, h } : size === "medium" ? { y: y + 14, h: h - 14 } : { y: y + 21, h: h - 24 };
  pen.globalAlpha = absent ? 0.35 : 1;
  pen.fillStyle = colour("--cell");
  pen.strokeStyle = colour("--line");
  pen.lineWidth = 1;
  rounded(pen, x, y, w, h, size === "small" ? 2 : 5);
  pen.fill();
  if (size !== "small") pen.stroke();
  const inset = size === "large" ? 4 : size === "medium" ? 2 : 0;
  for (const it of cell.segments) {
    const left = x + inset + it.from * (w - 2 * inset);
    const wide = Math.max(1, (it.to - it.from) * (w - 2 * inset) - (size === "small" ? 0 : 1.5));
    paintSegment(pen, it, left, bar.y, wide, bar.h - (size === "medium" ? 2 : 0), colour, size);
    const mark = it.volume ? marks.get(`volume/${it.volume.name}`) : undefined;
    if (mark) outline(pen, left, bar.y, wide, bar.h - 1, colour(MARK_COLOURS[mark]!));
  }
  if (size !== "small") {
    pen.fillStyle = colour(cell.node?.schedulable === false ? "--quiet" : "--ink");
    pen.font = `${size === "large" ? 12 : 10}px system-ui, sans-serif`;
    const pods = size === "large" && cell.node?.pods ? count(cell.node.pods, "pod") : "";
    const room = w - 10 - (pods ? 48 : 0);
    pen.fillText(fitted(pen, cell.label, room), x + (size === "large" ? 6 : 3), y + (size === "large" ? 11 : 7));
    if (pods) {
      pen.fillStyle = colour("--quiet");
      pen.font = "11px system-ui, sans-serif";
      pen.textAlign = "right";
      pen.fillText(pods, x + w - 6, y + 11);
      pen.textAlign = "left";
    }
  }
  pen.globalAlpha = 1;
  const mark = marks.get(cell.id);
  if (mark) outline(pen, x, y, w, h, colour(MARK_COLOURS[mark]!));
  if (mark === "lost") cross(pen, x, y, w, h, colour("--wrong"));
  if (focused) outline(pen, x - 1, y - 1, w + 2, h + 2, colour("--focus"));
}

function paintSegment(
  pen: CanvasRenderingContext2D, it: Segment, x: number, y: number, w: number, h: number, colour: Colour, size: Size,
): void {
  pen.fillStyle = colour(`--state-${it.state}`);
  rounded(pen, x, y, w, h, Math.min(3, w / 2));
  pen.fill();
  if (it.state === "free") {
    pen.strokeStyle = colour("--state-free-line");
    pen.lineWidth = 1;
    pen.stroke();
  }
  if (size === "large" && it.volume && w > 44) {
    pen.fillStyle = colour(`--on-${it.state}`);
    pen.font = "11px system-ui, sans-serif";
    pen.fillText(fitted(pen, it.volume.name, w - 8), x + 4, y + h / 2 + 0.5);
  }
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
