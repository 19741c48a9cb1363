import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { shown, pageBefore, pageSize } = await load("streams/messages.ts");
const { headersOf } = await load("streams/publish.tsx");

test("headers are shown as they are stored", () => {
  const [one, two] = shown('{"messages":[{"position":7,"time":"t","headers":{"big":9007199254740993,"a":{"b":1.10}},"payload":"x"},{"position":8,"time":"t","payload_base64":"/wA="}],"next":8}');
  assert.deepEqual(one, { position: 7, time: "t", key: undefined, headers: '{"big":9007199254740993,"a":{"b":1.10}}', payload: "x" });
  assert.deepEqual([...two.payload], [255, 0]);
  assert.equal(two.headers, undefined);
});

/** A stream with messages at these positions. */
const streamOf = (positions) => async (_, after, __, limit) => {
  const messages = positions.filter((p) => p > after).slice(0, limit).map((position) => ({ position }));
  return { messages, full: messages.length === limit };
};

test("a page before a position has the messages that are nearest to it", async () => {
  const before = async (positions, position) => (await pageBefore("s", position, "", undefined, streamOf(positions))).messages.map((m) => m.position);
  const all = Array.from({ length: 3000 }, (_, i) => i + 1);
  assert.deepEqual(await before(all, 3001), all.slice(-pageSize));
  assert.deepEqual(await before(all, 11), all.slice(0, 10));
  assert.deepEqual(await before(all, 1), []);
  assert.deepEqual(await before([], 1), []);
  const rare = [3, 9000, 1_000_000, 1_000_001];
  assert.deepEqual(await before(rare, 1_000_001), [3, 9000, 1_000_000]);
  const dense = [...Array.from({ length: 200 }, (_, i) => i + 1), 5000];
  assert.deepEqual(await before(dense, 5001), dense.slice(-pageSize));
});

test("headers that a browser would change are not sent", () => {
  assert.deepEqual(headersOf(" "), {});
  assert.deepEqual(headersOf('{"a":"b"}'), { headers: { a: "b" } });
  for (const text of ["[]", "x", '{"a":', "1", '{"a":9007199254740993}']) assert.ok(headersOf(text).wrong, text);
});
