import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { merge, even, length, last, lastKnown, highest, total } = await load("parts/points.ts");
const { above, pathOf, unitOf } = await load("parts/plot.tsx");

test("new points follow the old ones, and the oldest go", () => {
  let points = { time: [] };
  for (let i = 0; i < length + 10; i++) points = merge(points, { time: [i], stored: [i * 2] });
  assert.equal(points.time.length, length);
  assert.equal(points.time[0], 10);
  assert.equal(points.stored.at(-1), (length + 9) * 2);
  assert.deepEqual(merge(points, { time: [], stored: [] }), points);
});

test("a figure that an older server did not have is 0 before", () => {
  assert.deepEqual(merge({ time: [1, 2] }, { time: [3], fresh: [7] }), { time: [1, 2, 3], fresh: [0, 0, 7] });
});

test("a plot has a place for each second", () => {
  const values = even({ time: [100, 102], a: [5, 6] }, "a", 102);
  assert.equal(values.length, length);
  assert.deepEqual(values.slice(-3), [5, null, 6]);
  assert.equal(values[0], null);
});

test("figures in one number", () => {
  const points = { time: [1, 2, 3], a: [4, 9, 0] };
  assert.equal(last(points, "a"), 0);
  assert.equal(lastKnown(points, "a"), 9);
  assert.equal(highest(points, "a"), 9);
  assert.equal(total(points, "a"), 13);
  assert.equal(last(points, "none"), undefined);
  assert.equal(highest(points, "none"), 0);
});

test("the height of a plot is a round number, and so is its half", () => {
  assert.deepEqual([1, 1023, 1024, 2 ** 20 - 1, 2 ** 20].map(unitOf), [1, 1, 1024, 1024, 2 ** 20]);
  assert.deepEqual([1, 4, 4.1, 7, 99, 101, 1000, 1_000_001].map(above), [1, 4, 6, 8, 100, 200, 1000, 2_000_000]);
});

test("a line has gaps, and a value without neighbours is a dot", () => {
  assert.equal(pathOf([null, 0, 5, null, 10, null], 10), "M1 100L2 50M4 0h.1");
  assert.equal(pathOf([3, null, null], 4), "M0 25h.1");
  assert.equal(pathOf([null], 4), "");
});
