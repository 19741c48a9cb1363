// The arguments of both programs: OP --url URL --count N --size BYTES --in-flight N
import { parseArgs } from "node:util";

const string = { type: "string" };
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { url: string, stream: string, count: { ...string, default: "100000" }, size: { ...string, default: "128" }, "in-flight": { ...string, default: "256" } },
});

export const op = positionals[0];
export const url = values.url;
export const stream = values.stream ?? "bench-js";
export const count = Number(values.count);
export const inFlight = Number(values["in-flight"]);
export const payload = "x".repeat(Number(values.size));

if (!url || !["publish", "subscribe", "memory"].includes(op)) {
  console.error("usage: node bench.js publish|subscribe|memory --url ws://… [--stream NAME] [--count N] [--size BYTES] [--in-flight N]");
  process.exit(2);
}

/** Calls `one` count times, at most `inFlight` at a time. */
export async function many(one) {
  let left = count;
  const lane = async () => {
    while (left-- > 0) await one();
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
}

export function report(began) {
  const seconds = (performance.now() - began) / 1_000;
  console.log(JSON.stringify({ op, count, seconds: Number(seconds.toFixed(3)), per_second: Math.round(count / seconds) }));
}
