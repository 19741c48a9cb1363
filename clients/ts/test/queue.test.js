import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { Dead, LeaseLost, Retry } from "#client";
import { fake, settle, watch } from "./fake.js";

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  mock.method(Math, "random", () => 0);
});
afterEach(() => {
  mock.reset();
  mock.timers.reset();
});

async function working(handler, options) {
  const f = fake();
  const done = [];
  const worker = f.tw.queue("q").work(handler, { onDone: (job, outcome, error) => done.push([job.position, outcome, error?.message]), ...options });
  f.stopped = watch(worker.done);
  await f.up();
  f.request = f.socket.of("consume")[0];
  f.socket.ok(f.request);
  await worker.ready;
  f.deliver = (position, fields = {}) =>
    f.socket.say({ type: "delivery", queue: "q", delivery: `d${position}`, attempt: 1, position, time: "2026-11-26T08:05:07Z", payload: `${position}`, ...fields });
  return { f, worker, done };
}

test("enqueue has all options, and is repeated by its client and sequence", async () => {
  const f = fake();
  const call = watch(f.tw.queue("q").enqueue({ a: 1 }, { delay: "5m", priority: 3, key: "k", headers: { h: 1 } }));
  void f.tw.queue("q").enqueue(1, { uniqueKey: "u", uniqueFor: "10s" });
  void f.tw.queue("q").enqueueAll([1, 2]);
  await f.up();
  const [one, unique, all] = f.socket.sent;
  assert.match(one.client, /^[0-9a-f]{32}$/);
  assert.deepEqual({ ...one, client: 0, id: 0 }, { type: "enqueue", id: 0, queue: "q", delay_ms: 300_000, priority: 3, client: 0, sequence: 0, payload: '{"a":1}', key: "k", headers: { h: 1 } });
  assert.deepEqual({ ...unique, id: 0 }, { type: "enqueue", id: 0, client: one.client, sequence: 1, queue: "q", unique_key: "u", unique_ms: 10_000, payload: "1" });
  assert.deepEqual(all.messages, [{ payload: "1" }, { payload: "2" }]);
  f.socket.ok(one, { position: 4, duplicate: true });
  await settle();
  assert.deepEqual(call.value, { position: 4, duplicate: true });
});

test("the server knows what begins before a handler is called: all of one turn in one message", async () => {
  const known = [];
  const { f } = await working(() => void known.push(f.socket.of("begin")), { concurrency: 2 });
  assert.equal(f.request.begin, true);
  f.deliver(1);
  f.deliver(2);
  await settle();
  const begin = { type: "begin", queue: "q", deliveries: ["d1", "d2"] };
  assert.deepEqual(known, [[begin], [begin]]);
});

test("a handler that returns acknowledges at once if nothing else runs", async () => {
  const { f, done } = await working((job) => assert.equal(job.value, job.position));
  assert.equal(f.request.credits, 1);
  f.deliver(1);
  await settle();
  assert.deepEqual({ ...f.socket.of("ack")[0], id: 0 }, { id: 0, type: "ack", queue: "q", deliveries: ["d1"] });
  assert.deepEqual(done, []);
  f.socket.ok(f.socket.of("ack")[0], { count: 1 });
  await settle();
  assert.deepEqual(done, [[1, "acked", undefined]]);
});

test("acknowledgements of 10 ms go out together", async () => {
  const holds = [];
  const { f, done } = await working((job) => (job.position > 3 ? new Promise((resolve) => holds.push(resolve)) : undefined), { concurrency: 6 });
  for (let i = 6; i > 0; i--) f.deliver(i);
  await settle();
  mock.timers.tick(10);
  await settle();
  const acks = f.socket.of("ack");
  assert.equal(acks.length, 1);
  f.socket.error(acks[0], "lease_lost", { lost: ["d2"], count: 2 });
  await settle();
  assert.deepEqual(done.sort(), [[1, "acked", undefined], [2, "lost", undefined], [3, "acked", undefined]]);
});

test("acknowledgements whose outcome is not known are sent again", async () => {
  const { f, done } = await working(() => {});
  f.deliver(1);
  await settle();
  f.socket.error(f.socket.of("ack")[0], "not_settled", { failed: ["d1"], retryable: true });
  await settle();
  mock.timers.tick(0);
  await settle();
  f.socket.ok(f.socket.of("ack")[1], { count: 1 });
  await settle();
  assert.deepEqual(done, [[1, "acked", undefined]]);
});

test("a handler that throws gives the message back: later, after a time, or for good", async () => {
  const { f } = await working((job) => {
    if (job.position === 1) throw new Error(`no\0${"é".repeat(1_000)}`);
    if (job.position === 2) job.retry("2s", "busy");
    if (job.position === 3) job.dead("no address");
    if (job.position === 4) throw new Retry(5);
    throw new Dead("gone");
  }, { concurrency: 5 });
  for (let i = 1; i <= 5; i++) f.deliver(i);
  await settle();
  const nacks = f.socket.of("nack").map(({ id, type, queue, ...fields }) => fields);
  assert.ok(Buffer.byteLength(nacks[0].reason) <= 1_024);
  assert.match(nacks[0].reason, /^noé+$/);
  assert.deepEqual(nacks.slice(1), [
    { deliveries: ["d2"], delay_ms: 2_000, reason: "busy" },
    { deliveries: ["d3"], dead: true, reason: "no address" },
    { deliveries: ["d4"], delay_ms: 5 },
    { deliveries: ["d5"], dead: true, reason: "gone" },
  ]);
});

test("a payload that the codec refuses goes back with the reason", async () => {
  const { f, done } = await working(() => assert.fail("the handler must not run"));
  f.deliver(1, { payload: "{" });
  await settle();
  assert.match(f.socket.of("nack")[0].reason, /the payload is not valid/);
  f.socket.ok(f.socket.of("nack")[0], { count: 1 });
  await settle();
  assert.equal(done[0][1], "nacked");
});

test("a lease is extended at half its time, and its loss aborts the handler", async () => {
  const { f, done } = await working((job) => new Promise((resolve) => job.signal.addEventListener("abort", () => resolve(job.signal.reason))), { lease: "10s" });
  f.deliver(1);
  await settle();
  mock.timers.tick(4_999);
  await settle();
  assert.equal(f.socket.of("extend").length, 0);
  mock.timers.tick(1);
  await settle();
  assert.deepEqual({ ...f.socket.of("extend")[0], id: 0 }, { id: 0, type: "extend", queue: "q", deliveries: ["d1"], lease_ms: 10_000 });
  f.socket.ok(f.socket.of("extend")[0], { count: 1 });
  await settle();
  mock.timers.tick(5_000);
  await settle();
  f.socket.error(f.socket.of("extend")[1], "lease_lost", { lost: ["d1"] });
  await settle();
  assert.deepEqual(done, [[1, "lost", undefined]]);
  assert.equal(f.socket.of("ack").length, 0);
  mock.timers.tick(60_000);
  await settle();
  assert.equal(f.socket.of("extend").length, 2);
});

test("a reconnect loses the leases, and the worker consumes again", async () => {
  let signal;
  const { f, done } = await working((job) => new Promise((resolve) => (signal = job.signal).addEventListener("abort", resolve)));
  f.deliver(1);
  await settle();
  f.socket.cut();
  await settle();
  assert.ok(signal.reason instanceof LeaseLost);
  assert.deepEqual(done, [[1, "lost", undefined]]);
  mock.timers.tick(0);
  await f.up();
  assert.equal(f.socket.of("consume").length, 1);
  f.socket.ok(f.socket.of("consume")[0]);
  f.deliver(1, { delivery: "other" });
  await settle();
});

test("an acknowledgement that has no answer when the connection ends is lost", async () => {
  const { f, done } = await working(() => {});
  f.deliver(1);
  await settle();
  f.socket.cut();
  await settle();
  assert.deepEqual(done, [[1, "lost", undefined]]);
});

test("stop waits for handlers, gives the others back, and ends the consumer", async () => {
  const aborted = [];
  const { f, worker } = await working((job) => new Promise((resolve) => job.signal.addEventListener("abort", () => resolve(aborted.push(job.position)))), { concurrency: 2 });
  f.deliver(1);
  await settle();
  const stopped = watch(worker.stop({ drain: "2s" }));
  f.deliver(2);
  await settle();
  assert.deepEqual(f.socket.of("credit")[0], { type: "credit", queue: "q", n: -2 });
  assert.deepEqual(aborted, []);
  mock.timers.tick(2_000);
  await settle();
  assert.deepEqual(aborted, [1]);
  assert.equal(stopped.done, false);
  f.socket.ok(f.socket.of("cancel")[0]);
  await settle();
  assert.equal(stopped.done, true);
  assert.equal(f.stopped.error, undefined);
  assert.equal(f.socket.of("ack").length, 0);
});

test("a failure of the worker itself surfaces", async () => {
  const { f } = await working(() => {});
  f.socket.say({ type: "error", queue: "q", code: "unavailable", message: "no database", retryable: true });
  mock.timers.tick(0);
  await settle();
  assert.equal(f.socket.of("consume").length, 2);
  f.socket.say({ type: "error", queue: "q", code: "queue_gone", message: "dropped", retryable: false });
  await settle();
  assert.equal(f.stopped.error.code, "queue_gone");

  const other = fake();
  const worker = other.tw.queue("q").work(() => {});
  const done = watch(worker.done);
  await other.up();
  other.socket.error(other.socket.of("consume")[0], "not_found");
  await assert.rejects(worker.ready, { name: "NotFound" });
  assert.equal(done.error.name, "NotFound");
});

test("a second worker of a queue is refused", async () => {
  const { f } = await working(() => {});
  assert.throws(() => f.tw.queue("q").work(() => {}), TypeError);
});

test("without onDone, a handler that fails is told on the console, and one that gives the message back is not", async () => {
  const warn = mock.method(console, "warn", () => {});
  const broken = new Error("broken");
  const { f } = await working((job) => {
    if (job.position === 1) throw broken;
    if (job.position === 2) job.retry(1);
    if (job.position === 3) job.dead("no use");
  }, { concurrency: 4, onDone: undefined });
  for (let position = 1; position <= 4; position++) f.deliver(position);
  await settle();
  for (const m of [...f.socket.of("nack"), ...f.socket.of("ack")]) f.socket.ok(m, { count: 1 });
  await settle();
  const [call, ...more] = warn.mock.calls;
  assert.equal(more.length, 0);
  assert.match(call.arguments[0], /queue q, position 1, delivery d1/);
  assert.equal(call.arguments[1], broken);
});

test("a worker that is stopped before its first request is sent never consumes", async () => {
  const f = fake();
  await f.tw.queue("q").work(() => {}).stop();
  await f.up();
  assert.equal(f.socket.of("consume").length, 0);
});

test("a worker that is stopped while its first request waits for another attempt never consumes", async () => {
  const f = fake();
  const worker = f.tw.queue("q").work(() => {});
  await f.up();
  f.socket.error(f.socket.of("consume")[0], "unavailable", { retryable: true, retry_after_ms: 1_000 });
  await settle();
  const stopped = watch(worker.stop());
  await settle();
  f.socket.error(f.socket.of("cancel")[0], "not_consuming");
  await settle();
  assert.ok(stopped.done);
  mock.timers.tick(1_000);
  await settle();
  assert.equal(f.socket.of("consume").length, 1);
});

test("a worker whose first request has no answer in time is ended on the server", async () => {
  const f = fake();
  const worker = f.tw.queue("q").work(() => {}, { timeout: "1s" });
  const done = watch(worker.done);
  await f.up();
  mock.timers.tick(1_000);
  await settle();
  assert.equal(done.error.code, "timeout");
  assert.equal(f.socket.of("cancel").length, 1);
});

test("an extension that is refused goes to the listener of errors, and ends no lease", async () => {
  const { f, done } = await working(() => new Promise(() => {}));
  const errors = [];
  f.tw.on("error", (error) => errors.push(error.code));
  f.deliver(1);
  await settle();
  mock.timers.tick(15_000);
  await settle();
  f.socket.error(f.socket.of("extend")[0], "unavailable", { retryable: true });
  await settle();
  assert.deepEqual(errors, ["unavailable"]);
  assert.deepEqual(done, []);
  mock.timers.tick(15_000);
  await settle();
  assert.equal(f.socket.of("extend").length, 2);
});

test("an acknowledgement has no more deliveries than the server takes", async () => {
  const { f, done } = await working(() => {}, { concurrency: 2_500 });
  for (let i = 0; i < 2_500; i++) f.deliver(i);
  await settle();
  mock.timers.tick(10);
  for (let i = 0; i < 3; i++) {
    await settle();
    f.socket.ok(f.socket.of("ack")[i]);
  }
  await settle();
  assert.deepEqual(f.socket.of("ack").map((m) => m.deliveries.length), [1_000, 1_000, 500]);
  assert.equal(done.filter(([, outcome]) => outcome === "acked").length, 2_500);
});

test("an error without a text gives the message back, too", async () => {
  const odd = [Object.assign(new Error(), { message: undefined }), Object.assign(new Error(), { message: { a: 1 } }), Symbol("s")];
  const { f } = await working((job) => {
    throw odd[job.position];
  }, { concurrency: 3 });
  for (const position of [0, 1, 2]) f.deliver(position);
  await settle();
  assert.equal(f.socket.of("nack").length, 3);
});
