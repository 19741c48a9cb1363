import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

globalThis.location ??= { protocol: "http:", host: "x" };
const { take, points, overview, servers } = await load("overview/data.ts");

const told = (node, times, started = "t") => ({ node, started, closed: false, points: { time: times, stored: times.map((n) => n * 10) } });

test("each server keeps its points, and that of one is shown as long as it answers", () => {
  take(told("a", [1, 2]), null, 0);
  take(told("b", [2]), null, 1000);
  assert.deepEqual([overview.value.node, points.value.time, servers.value], ["a", [1, 2], ["a", "b"]]);
  take(told("a", [2, 3]), null, 2000);
  take(told("b", [1, 2, 3, 4]), null, 3000);
  assert.deepEqual([overview.value.node, points.value.stored], ["a", [10, 20, 30]]);
  take(told("b", [3, 4, 5]), "b", 4000);
  assert.deepEqual([overview.value.node, points.value.time, servers.value], ["b", [1, 2, 3, 4, 5], ["a", "b"]]);
  take(told("a", [4]), "a", 5000);
  assert.deepEqual([overview.value.node, points.value.time], ["a", [1, 2, 3, 4]]);
  take(told("b", [6]), null, 11_000);
  assert.deepEqual([overview.value.node, points.value.time, servers.value], ["b", [1, 2, 3, 4, 5, 6], ["b"]]);
  take(told("b", [7], "anew"), null, 12_000);
  take(told("b", [6, 7, 8], "anew"), null, 13_000);
  assert.deepEqual(points.value.time, [6, 7, 8]);
});
