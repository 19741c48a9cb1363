import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { bodyOf, count, lettersOf, reasonsOf } = await load("queues/data.ts");
const { numberOf } = await load("queues/enqueue.tsx");
const { fromInput, toInput } = await load("format/time.ts");

test("dead letters keep the numbers of their headers", () => {
  const { letters, next } = lettersOf('{"dead":[{"position":3,"time":"t","headers":{"n":9007199254740993},"payload":"x","attempts":4,"reason":"no","died":"d"},{"position":4,"time":"t","payload":"","attempts":1}],"next":4}');
  assert.deepEqual(letters[0], { position: 3, time: "t", key: undefined, headers: '{"n":9007199254740993}', payload: "x", attempts: 4, reason: "no", died: "d" });
  assert.deepEqual([letters[1].reason, letters[1].died, next], [undefined, undefined, 4]);
});

/** Pages of n letters, with a reason for each. */
const pagesOf = (n, reason = () => "r") => async (_, __, after, limit) => {
  const letters = Array.from({ length: Math.min(limit, n - after) }, (_, i) => ({ reason: reason(after + i), died: `t${after + i}` }));
  return { letters, next: after + limit < n ? after + limit : undefined };
};

test("what matches is counted up to the bound that wants a name", async () => {
  for (const [n, found, more] of [[0, 0, false], [1000, 1000, false], [1001, 1001, false], [2001, 2000, true]]) {
    assert.deepEqual(await count("q", {}, undefined, pagesOf(n)), { count: found, more });
  }
});

test("reasons are grouped, the most frequent first", async () => {
  const read = [];
  const { groups, more } = await reasonsOf("q", {}, undefined, (n) => read.push(n), pagesOf(1100, (i) => (i % 10 ? "often" : i % 20 ? undefined : "rare")));
  assert.deepEqual(groups.map((g) => [g.reason, g.count, g.last]), [["often", 990, "t999"], ["rare", 55, "t980"], [undefined, 55, "t990"]]);
  assert.deepEqual([read, more], [[1000, 1100], false]);
  assert.deepEqual([(await reasonsOf("q", {}, undefined, () => {}, pagesOf(30_000))).read, (await reasonsOf("q", {}, undefined, () => {}, pagesOf(30_000))).more], [20_000, true]);
});

test("fields of forms", () => {
  assert.deepEqual(bodyOf({ reason: "7", min_attempts: "7" }), { reason: "7", min_attempts: 7 });
  assert.deepEqual([numberOf(" ", "N", 9), numberOf("9", "N", 9), numberOf("0.5", "N", 9, 0.1)], [{}, { n: 9 }, { n: 0.5 }]);
  for (const text of ["10", "-1", "1.5", "x", "Infinity"]) assert.equal(numberOf(text, "N", 9).wrong, "N is a whole number from 0 to 9.");
  assert.equal(toInput(fromInput("2026-03-01T10:20:30")), "2026-03-01T10:20:30");
  assert.deepEqual([toInput(undefined), toInput("<b>")], ["", ""]);
});
