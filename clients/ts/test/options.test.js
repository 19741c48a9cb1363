// Options that cannot be: an error at the call that says what to give.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Retry } from "#client";
import { end, fake } from "./fake.js";

const nothing = () => {};
for (const [what, call, error] of [
  ["a negative timeout of the client", () => fake({ timeout: -1 }), /-1 is no duration: give/],
  ["no number as maxPending", () => fake({ maxPending: NaN }), /maxPending is NaN: give/],
  ["no place for a byte", () => fake({ maxPendingBytes: 0 }), /maxPendingBytes is 0: give/],
  ["a negative timeout", (tw) => tw.stream("s").publish(1, { timeout: -1 }), /-1 is no duration/],
  ["a timeout that is no number", (tw) => tw.events().append({ type: "t" }, { timeout: NaN }), /NaN is no duration/],
  ["a timeout that is no time", (tw) => tw.stream("s").subscribe({ timeout: "soon" }), /soon is no duration/],
  ["a delay without end", (tw) => tw.queue("q").enqueue(1, { delay: Infinity }), /Infinity is no duration/],
  ["a negative pause", () => new Retry("-1s"), /-1s is no duration/],
  ["half a handler", (tw) => tw.queue("q").work(nothing, { concurrency: 0.5 }), /concurrency is 0.5: give a whole number/],
  ["no handler", (tw) => tw.queue("q").work(nothing, { concurrency: 0 }), /concurrency is 0/],
  ["a lease that is no number", (tw) => tw.queue("q").work(nothing, { lease: NaN }), /NaN is no duration/],
  ["a timeout of a worker", (tw) => tw.queue("q").work(nothing, { timeout: -1 }), /-1 is no duration/],
  ["a negative drain", (tw) => tw.queue("q").work(nothing).stop({ drain: -1 }), /-1 is no duration/],
  ["no credits", (tw) => tw.stream("s").subscribe({ credits: 0 }), /credits is 0/],
  ["credits of events", (tw) => tw.events().subscribe({ items: [] }, { credits: NaN }), /credits is NaN/],
  ["two starts", (tw) => tw.stream("s").subscribe({ after: 0, from: "start" }), /give one of after, at, from and group/],
  ["a time and a position", (tw) => tw.stream("s").subscribe({ after: 0, at: new Date(0) }), /give one of/],
  ["a group and a position", (tw) => tw.stream("s").subscribe({ after: 0, group: "g" }), /give one of/],
  ["a share of nothing", (tw) => tw.stream("s").subscribe({ share: true }), /share needs a group/],
  ["pages of nothing", (tw) => tw.stream("s").subscribe().pages(0), /max is 0/],
  ["a room without a buffer", (tw) => tw.room("r").join({ buffer: NaN }), /buffer is NaN/],
  ["no attempt", (tw) => tw.events().decide({}, () => [], { attempts: NaN }), /attempts is NaN/],
]) {
  test(`${what} is refused at the call`, async () => {
    const f = fake();
    await assert.rejects(async () => call(f.tw), (found) => (found instanceof RangeError || found instanceof TypeError) && error.test(found.message));
    await end(f);
  });
}

test("a worker that was refused can be asked for again", async () => {
  const f = fake();
  assert.throws(() => f.tw.queue("q").work(nothing, { concurrency: -1 }));
  f.tw.queue("q").work(nothing);
  await f.up();
  assert.equal(f.socket.of("consume").length, 1);
  await end(f);
});
