// Result files of benchmarks, for tests.
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** A result with one row of five repeats around a rate. */
export function result(scenario, rate, more = {}) {
  const trials = [0.98, 0.99, 1, 1.01, 1.02].map((factor) => ({ messages_per_second: rate * factor, latency_p50_ms: 2, latency_p99_ms: 9, seconds: 10, server_cpu_seconds: 4, lost: 0 }));
  return {
    schema: 1, scenario, started: "2026-03-01T12:00:00Z", valid: true, checks: [{ name: "rows equal sent", ok: true, detail: "all" }], params: { payload: 100 },
    environment: { cpu: "Some CPU", cores: 2, memory_bytes: 8e9, os: "linux/amd64", go: "go1.26", kernel: "6.1" },
    rows: [{ name: "auto", metrics: trials[2], trials, limiter: "server CPU" }], ...more,
  };
}

/** Writes results into a folder, by their names. */
export async function write(folder, results) {
  await mkdir(folder, { recursive: true });
  for (const [name, value] of Object.entries(results)) await writeFile(join(folder, `${name}.json`), typeof value === "string" ? value : JSON.stringify(value));
}
