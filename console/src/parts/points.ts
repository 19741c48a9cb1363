// The points of the overview: one list for each figure, all of one length.

export type Points = Record<string, number[]> & { time: number[] };

/** How many points a server keeps: 15 minutes. */
export const length = 900;

/** Adds points that came after those that there are, and drops the oldest. */
export function merge(before: Points, more: Points): Points {
  const all: Points = { time: [] };
  for (const name of Object.keys(more)) {
    const had = before[name] ?? before.time.map(() => 0);
    all[name] = [...had, ...more[name]!].slice(-length);
  }
  return all;
}

/** The points after a time. */
export function newer(points: Points, time: number): Points {
  const from = points.time.findIndex((at) => at > time);
  return Object.fromEntries(Object.entries(points).map(([name, values]) => [name, from < 0 ? [] : values.slice(from)])) as Points;
}

/** A list with a point for each second of the last 15 minutes before `end`: null where there is none. So a plot has gaps, and its width is always the same. */
export function even(points: Points, name: string, end: number): (number | null)[] {
  const values: (number | null)[] = new Array(length).fill(null);
  points.time.forEach((time, i) => {
    const at = time - (end - length + 1);
    if (at >= 0 && at < length) values[at] = points[name]?.[i] ?? null;
  });
  return values;
}

/** The last point of a figure, and its highest. */
export const last = (points: Points, name: string): number | undefined => points[name]?.at(-1);
export const highest = (points: Points, name: string): number => (points[name] ?? []).reduce((a, b) => Math.max(a, b), 0);
export const total = (points: Points, name: string): number => (points[name] ?? []).reduce((a, b) => a + b, 0);

/** The last point that is not 0, for figures that are missing in seconds without requests. */
export function lastKnown(points: Points, name: string): number | undefined {
  return points[name]?.slice(-10).findLast((value) => value > 0);
}
