import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { changed, pointsOf, written } = await load("bench/data.ts");
const { even } = await load("parts/points.ts");

test("the points of a run are those of a plot", () => {
  const points = pointsOf({ points: [{ time: "1970-01-01T00:01:40.9Z", rate: 7, p50_ms: 1.5, p99_ms: 3 }, { time: "1970-01-01T00:01:42Z", rate: 8 }] });
  assert.deepEqual(points, { time: [100, 102], rate: [7, 8], p50: [1500, 0], p99: [3000, 0] });
  assert.deepEqual(even(points, "rate", 102, 4), [null, 7, null, 8]);
});

test("a figure has four digits, and its interval if there is one", () => {
  assert.equal(written({ median: 15_612.4, low: 14_437, high: 16_763 }), "15,610 (14,440 to 16,760)");
  assert.equal(written({ median: 0.354712 }), "0.3547");
});

test("a change is told if it is none of chance", () => {
  const change = (before, after, significant) => changed({ before: { median: before }, after: { median: after }, significant });
  assert.equal(change(1000, 1500, true), "+50.0 %");
  assert.equal(change(1000, 900, true), "−10.0 %");
  assert.equal(change(1000, 900, false), "~");
  assert.equal(change(0, 5, true), "from 0");
});
