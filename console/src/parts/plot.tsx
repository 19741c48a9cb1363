import { signal, useComputed, type Signal } from "@preact/signals";
import { second } from "../format/time.js";
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
  /** Whether values are bytes: then the height is a round number of KiB, MiB and so on. */
  binary?: boolean;
  /** Whether a second without a value has none: 0 is no latency. */
  gaps?: boolean;
  /** How many seconds its width stands for. */
  seconds?: number;
}

/** The second under the pointer, in all plots; null without one. */
const pointed = signal<number | null>(null);

/** The height of the drawing. Its width is the number of seconds, and CSS stretches both. */
const height = 100;

/** The lines of the last minutes. The legend has the values under the pointer, or the last ones. */
export function Plot({ title, lines, points, write, least, binary = false, gaps = false, seconds = length }: PlotOptions) {
  const drawn = useComputed(() => drawingOf(points.value, lines, least, binary, gaps, seconds));
  const { end, top, values, paths } = drawn.value;
  const under = pointed.value;
  const at = under ?? seconds - 1;
  const text = (i: number) => {
    const value = values[i]![at];
    return value === null || value === undefined ? "–" : write(value);
  };
  const point = (event: PointerEvent) => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    pointed.value = Math.max(0, Math.min(seconds - 1, Math.round(((event.clientX - left) / width) * (seconds - 1))));
  };
  const time = (n: number) => second(end - seconds + 1 + n);
  return (
    <figure class="plot">
      <figcaption>
        <h3>{title}{under !== null && <time> at {time(under)}</time>}</h3>
        <ul class="legend">
          {lines.map(({ name, label, colour, dash }, i) => (
            <li key={name}>
              <svg viewBox="0 0 24 4" aria-hidden="true" class={`s${colour}`}><path d="M0 2h24" stroke-dasharray={dash?.join(" ")} /></svg>
              {label} <b class="value">{text(i)}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="drawing" role="img" aria-label={`${title}, the last ${seconds / 60} minutes. The newest values: ${lines.map(({ label }, i) => `${label} ${text(i)}`).join(", ")}`}>
        <p>{[top, top / 2, 0].map((value) => <span key={value}>{write(value)}</span>)}</p>
        <svg viewBox={`0 0 ${seconds - 1} ${height}`} preserveAspectRatio="none" onPointerMove={point} onPointerLeave={() => void (pointed.value = null)}>
          <path class="grid" d={`M0 0H${seconds}M0 ${height / 2}H${seconds}M0 ${height}H${seconds}M${seconds / 3} 0V${height}M${(seconds * 2) / 3} 0V${height}`} />
          {lines.map(({ name, colour, dash }, i) => <path key={name} class={`s${colour}`} d={paths[i]!} stroke-dasharray={dash?.join(" ")} />)}
          {under !== null && <path class="under" d={`M${under} 0V${height}`} />}
        </svg>
        <p>{[0, 1, 2, 3].map((n) => <span key={n}>{time((n * seconds) / 3).slice(0, seconds < length ? undefined : -3)}</span>)}</p>
      </div>
    </figure>
  );
}

interface Drawing {
  /** The time of the last second, since 1970. */
  end: number;
  /** What the height of the plot stands for. */
  top: number;
  values: (number | null)[][];
  paths: string[];
}

function drawingOf(points: Points, lines: Line[], least: number, binary: boolean, gaps: boolean, seconds: number): Drawing {
  const end = points.time.at(-1) ?? Math.floor(Date.now() / 1000);
  const values = lines.map(({ name }) => even(points, name, end, seconds).map((value) => ((gaps && !value) || value! < 0 ? null : value)));
  const most = values.flat().reduce<number>((most, value) => Math.max(most, value ?? 0), least);
  const unit = binary ? unitOf(most) : 1;
  const top = above(most / unit) * unit;
  return { end, top, values, paths: values.map((line) => pathOf(line, top)) };
}

/** The unit that a number of bytes is written in: 1, 1024 and so on. */
export const unitOf = (n: number): number => 1024 ** Math.floor(Math.log2(n) / 10);

/** A round number that is no smaller, and whose half is round too. */
export function above(value: number): number {
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((n) => n * step >= value)! * step;
}

/** A line with a gap where there is no value. A value without neighbours is a dot: the ends of lines are round. */
export function pathOf(values: (number | null)[], top: number): string {
  let path = "";
  values.forEach((value, x) => {
    if (value === null) return;
    const y = +(height * (1 - value / top)).toFixed(1);
    const begins = (values[x - 1] ?? null) === null;
    path += begins ? `M${x} ${y}` : `L${x} ${y}`;
    if (begins && (values[x + 1] ?? null) === null) path += "h.1";
  });
  return path;
}
