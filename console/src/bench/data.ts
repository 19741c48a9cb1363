// Results of benchmarks, and a run, as /v1/bench has them.
import { ask } from "../api.js";
import type { Points } from "../parts/points.js";

export interface Result {
  result: string;
  scenario: string;
  started: string;
  machine: string;
  valid: boolean;
  figure?: string;
  row?: string;
}

export interface Known {
  folder: string;
  results: Result[];
  scenarios: { scenario: string; answers: string }[];
  starts: boolean;
}

export interface Run {
  scenario: string;
  state: "running" | "done" | "stopped" | "failed";
  started: string;
  ended?: string;
  step?: { row: string; number: number; of: number; phase: string };
  lines: string[];
  points: { time: string; row: string; rate: number; p50_ms?: number; p99_ms?: number; cores: number }[];
  results: string[];
}

interface Summary {
  median: number;
  low?: number;
  high?: number;
}

export interface Comparison {
  differences: string[];
  missing: string[];
  changes: { row: string; metric: string; main: boolean; before: Summary; after: Summary; significant: boolean }[];
}

/** The figures of a run, for plots: latencies in microseconds, 0 where there are none. */
export function pointsOf({ points }: Run): Points {
  return {
    time: points.map(({ time }) => Math.floor(Date.parse(time) / 1000)),
    rate: points.map(({ rate }) => rate),
    p50: points.map(({ p50_ms = 0 }) => p50_ms * 1000),
    p99: points.map(({ p99_ms = 0 }) => p99_ms * 1000),
  };
}

const four = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

/** A figure, with its interval if there is one. */
export const written = ({ median, low, high }: Summary): string => four.format(median) + (low === undefined || high === undefined ? "" : ` (${four.format(low)} to ${four.format(high)})`);

/** By how much a figure has changed, if that is not chance. */
export function changed({ before, after, significant }: Comparison["changes"][number]): string {
  if (!significant) return "~";
  if (!before.median) return "from 0";
  const percent = 100 * (after.median / before.median - 1);
  return `${percent < 0 ? "−" : "+"}${Math.abs(percent).toFixed(1)} %`;
}

/** Makes the report page of results, and returns its address. */
export const report = async (results: string[]): Promise<string> => (await ask<{ path: string }>("bench/reports", { method: "POST", body: { results } })).path;
