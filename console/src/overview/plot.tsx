import type { Signal } from "@preact/signals";
import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { even, length, type Points } from "./points.js";

/** A line of a plot. Colours and dashes are those of the report page. */
export interface Line {
  name: string;
  label: string;
  /** Its colour: 0 to 7. */
  colour: number;
  dash?: number[];
}

interface PlotOptions {
  title: string;
  lines: Line[];
  points: Signal<Points>;
  /** How a value is written. */
  write: (value: number) => string;
  /** The least that the height of the plot stands for. */
  least: number;
  /** Whether a second without a value has none: 0 is no latency. */
  gaps?: boolean;
  /** How many seconds its width stands for. */
  seconds?: number;
}

/** The lines of the last minutes. The legend has the values under the pointer, or the last ones. */
export function Plot({ title, lines, points, write, least, gaps = false, seconds = length }: PlotOptions) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const pointed = useSignal<number | null>(null);
  useEffect(() => {
    const element = place.current!;
    const make = () => {
      plot.current?.destroy();
      plot.current = draw(element, lines, dataOf(points.peek(), lines, gaps, seconds), write, least, (at) => void (pointed.value = at));
    };
    make();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    const resize = new ResizeObserver(() => plot.current?.setSize(sizeOf(element)));
    resize.observe(element);
    return () => {
      scheme.removeEventListener("change", make);
      resize.disconnect();
      plot.current!.destroy();
      plot.current = undefined;
    };
  }, []);
  useSignalEffect(() => {
    const data = dataOf(points.value, lines, gaps, seconds);
    plot.current?.setData(data);
  });
  const shown = dataOf(points.value, lines, gaps, seconds);
  const at = pointed.value ?? seconds - 1;
  const value = (i: number) => {
    const found = shown[i + 1]?.[at];
    return found === null || found === undefined ? "–" : write(found);
  };
  return (
    <figure class="plot">
      <figcaption>
        <h3>{title}</h3>
        <ul class="legend">
          {lines.map((line, i) => (
            <li key={line.name}>
              <svg viewBox="0 0 24 4" aria-hidden="true" class={`s${line.colour}`}><line x1="0" y1="2" x2="24" y2="2" stroke-dasharray={line.dash?.join(" ")} /></svg>
              {line.label} <b class="value">{value(i)}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div ref={place} class="canvas" role="img" aria-label={`${title}, the last ${seconds} seconds. The newest values: ${lines.map((line, i) => `${line.label} ${value(i)}`).join(", ")}`} />
    </figure>
  );
}

function dataOf(points: Points, lines: Line[], gaps: boolean, seconds: number): uPlot.AlignedData {
  const end = points.time.at(-1) ?? Math.floor(Date.now() / 1000);
  const times = Array.from({ length: seconds }, (_, i) => end - seconds + 1 + i);
  const values = lines.map(({ name }) => {
    const all = even(points, name, end, seconds);
    return gaps ? all.map((value) => value || null) : all;
  });
  return [times, ...values];
}

const sizeOf = (element: HTMLElement) => ({ width: Math.max(element.clientWidth, 120), height: 150 });

function draw(place: HTMLElement, lines: Line[], data: uPlot.AlignedData, write: (value: number) => string, least: number, point: (at: number | null) => void): uPlot {
  const style = getComputedStyle(place);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis: uPlot.Axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return new uPlot({
    ...sizeOf(place),
    legend: { show: false },
    padding: [8, 20, 0, 0],
    cursor: { sync: { key: "overview" }, y: false, drag: { x: false, y: false }, points: { size: 6 } },
    hooks: { setCursor: [(self) => point(self.cursor.left! < 0 ? null : self.cursor.idx ?? null)] },
    scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, least)] } },
    axes: [
      { ...axis, size: 26, space: 90, values: (_, splits) => splits.map((at) => clock(at, data[0].length < length)) },
      { ...axis, size: 62, space: 34, values: (_, splits) => splits.map(write) },
    ],
    series: [
      {},
      ...lines.map(({ label, colour: n, dash }): uPlot.Series => ({ label, stroke: colour(`--s${n}`), width: 1.5, points: { show: true, size: 4, width: 0, fill: colour(`--s${n}`), filter: alone }, spanGaps: false, ...(dash && { dash }) })),
    ],
  }, data, place);
}

/** The points of a series that have no neighbour: without a dot nothing of them would be seen. */
function alone(self: uPlot, series: number): number[] {
  const values = self.data[series]!;
  const none = (i: number) => values[i] === null || values[i] === undefined;
  return [...values.keys()].filter((i) => !none(i) && none(i - 1) && none(i + 1));
}

function clock(at: number, seconds: boolean): string {
  const t = new Date(at * 1000);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${t.getHours()}:${two(t.getMinutes())}${seconds ? `:${two(t.getSeconds())}` : ""}`;
}
