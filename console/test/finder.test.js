import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { Finder } = await load("streams/finder.ts");

/** A server with matches at these positions, which reads some positions for each request. */
const server = (matches, each, asked = []) => async (_, __, after, until) => {
  asked.push([after, until]);
  const next = Math.min(after + each, until);
  return { messages: matches.filter((p) => p > after && p <= next).map((position) => ({ position })), next, done: next === until };
};
const positions = (finder) => finder.messages.value.map(({ position }) => position);

test("a search reads the newest positions first, in parts, and finds each match once", async () => {
  const matches = [1, 7, 10_001, 19_999, 20_000, 24_000, 35_000];
  const finder = new Finder("s", { text: "x" }, 1, 34_999, server(matches, 3_000));
  assert.equal(finder.state.value, "running");
  await finder.run();
  assert.deepEqual(positions(finder), matches.slice(0, -1).reverse());
  assert.deepEqual([finder.state.value, finder.read.value, finder.all], ["done", 34_999, 34_999]);
  const part = new Finder("s", { text: "x" }, 7, 10_001, server(matches, 3_000));
  await part.run();
  assert.deepEqual([positions(part), part.all], [[10_001, 7], 9_995]);
});

test("it pauses when it has found many, stops, and goes on", async () => {
  const all = Array.from({ length: 30_000 }, (_, i) => i + 1);
  const few = all.filter((p) => p % 50 === 0);
  const finder = new Finder("s", { text: "x" }, 1, 30_000, server(few, 10_000));
  await finder.run();
  assert.deepEqual([finder.state.value, finder.messages.value.length, finder.read.value], ["paused", 330, 16_500]);
  await finder.run();
  await finder.run();
  assert.deepEqual([finder.state.value, positions(finder)], ["done", few.toReversed()]);
  const rare = all.filter((p) => p % 1000 === 0);
  const stopped = new Finder("s", { text: "x" }, 1, 30_000, async (...args) => {
    if (args[2] < 20_000) stopped.stop();
    return server(rare, 10_000)(...args);
  });
  await stopped.run();
  assert.deepEqual([stopped.state.value, positions(stopped)], ["stopped", rare.slice(-7).reverse()]);
});

test("it shows few at once, also if all match", async () => {
  const all = Array.from({ length: 30_000 }, (_, i) => i + 1);
  const finder = new Finder("s", { text: "x" }, 1, 30_000, server(all, 10_000));
  for (const found of [500, 1000]) {
    await finder.run();
    assert.deepEqual([finder.state.value, finder.messages.value.length], ["paused", found]);
  }
});

test("it ends where the stream does not keep more", async () => {
  const ask = server([14_000, 9_000], 5_000);
  const finder = new Finder("s", { text: "x" }, 1, 30_000, async (stream, want, after, until, signal) => {
    if (after < 12_000) throw Object.assign(new Error(), { oldest: 12_001 });
    return ask(stream, want, after, until, signal);
  });
  await finder.run();
  assert.deepEqual([finder.state.value, positions(finder), finder.read.value], ["done", [14_000], 30_000]);
});
