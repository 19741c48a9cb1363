import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { OutcomeUnknown, Timeout, TooBig } from "#client";
import { fake, hello, settle, watch } from "./fake.js";

beforeEach(() => mock.timers.enable({ apis: ["setTimeout", "Date"] }));
afterEach(() => mock.reset());
afterEach(() => mock.timers.reset());

async function connected(options) {
  const f = fake(options);
  const first = f.tw.stream("first").publish(0);
  const socket = await f.up();
  socket.ok(socket.sent[0], { position: 1 });
  await first;
  socket.sent.length = 0;
  return f;
}

test("publishes of one turn go as one request, and each caller gets its position", async () => {
  const f = await connected();
  const s = f.tw.stream("s");
  const all = Promise.all([s.publish(1), s.publish({ n: 2 }), s.publish("drei", { headers: { h: "1" } })]);
  await settle();
  const [request, ...more] = f.socket.sent;
  assert.equal(more.length, 0);
  assert.equal(request.stream, "s");
  assert.equal(request.sequence, 1);
  assert.match(request.client, /^[0-9a-f]{32}$/);
  assert.deepEqual(request.messages, [{ payload: "1" }, { payload: '{"n":2}' }, { payload: '"drei"', headers: { h: "1" } }]);
  f.socket.ok(request, { position: 7, count: 3 });
  assert.deepEqual((await all).map((stored) => stored.position), [7, 8, 9]);
});

test("another key, another stream and another kind of request go apart, in the order of the calls", async () => {
  const f = await connected();
  const s = f.tw.stream("s");
  void s.publish(1, { key: "a" });
  void s.publish(2, { key: "a" });
  void s.publish(3, { key: "b" });
  void f.tw.stream("t").publish(4);
  void s.publish(5, { key: "b" });
  void f.tw.queue("q").enqueue(6);
  void s.publish(7, { key: "b" });
  await settle();
  const shape = f.socket.sent.map((m) => [m.type, m.key ?? m.messages?.[0].key, m.payload ?? m.messages.map((each) => each.payload).join()]);
  assert.deepEqual(shape, [
    ["publish", "a", "1,2"],
    ["publish", "b", "3,5"],
    ["publish", undefined, "4"],
    ["enqueue", undefined, "6"],
    ["publish", "b", "7"],
  ]);
  assert.deepEqual(f.socket.sent.map((m) => m.sequence), [1, 2, 3, 4, 5]);
});

test("a batch has at most 1,000 messages and 256 KiB", async () => {
  const f = await connected();
  for (let i = 0; i < 1_001; i++) void f.tw.stream("s").publish(i);
  for (let i = 0; i < 3; i++) void f.tw.stream("t").publish("x".repeat(100_000));
  await settle();
  assert.deepEqual(f.socket.sent.map((m) => m.messages?.length ?? 1), [1_000, 1, 2, 1]);
});

test("batch: false sends each alone", async () => {
  const f = await connected({ batch: false });
  for (let i = 0; i < 3; i++) void f.tw.stream("s").publish(i);
  await settle();
  assert.deepEqual(f.socket.sent.map((m) => m.payload), ["0", "1", "2"]);
});

test("what is not answered is sent again, as the same request, in its order", async () => {
  mock.method(Math, "random", () => 0);
  const f = await connected({ batch: false });
  const s = f.tw.stream("s");
  const calls = [s.publish(1), s.publish(2), s.publish(3)];
  await settle();
  const before = [...f.socket.sent];
  f.socket.ok(before[1], { position: 2 });
  f.socket.cut();
  calls.push(s.publish(4));
  mock.timers.tick(0);
  const socket = await f.up();
  assert.deepEqual(socket.sent.slice(0, 2), [before[0], before[2]]);
  assert.deepEqual(socket.sent.map((m) => m.payload), ["1", "3", "4"]);
  socket.sent.forEach((m, i) => socket.ok(m, { position: i + 10, duplicate: i === 0 }));
  assert.deepEqual((await Promise.all(calls)).map((stored) => stored.duplicate), [true, false, false, false]);
});

test("a batch that is refused is sent again message by message, with new sequences", async () => {
  const f = await connected();
  const s = f.tw.stream("s");
  const calls = [1, 2, 3].map((n) => watch(s.publish(n)));
  await settle();
  f.socket.error(f.socket.sent[0], "invalid");
  await settle();
  const alone = f.socket.sent.slice(1);
  assert.deepEqual(alone.map((m) => [m.payload, m.sequence]), [["1", 2], ["2", 3], ["3", 4]]);
  f.socket.ok(alone[0], { position: 1 });
  f.socket.error(alone[1], "invalid", { field: "headers" });
  f.socket.ok(alone[2], { position: 2 });
  await settle();
  assert.equal(calls[0].value.position, 1);
  assert.equal(calls[1].error.code, "invalid");
  assert.equal(calls[1].error.field, "headers");
  assert.equal(calls[1].error.requestId, alone[1].id);
  assert.equal(calls[2].value.position, 2);
});

const half = "\ud800";
const deep = { a: { b: "c" } };
const trace = { traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-01`, tracestate: 'x="y\\z"', "é": "ü😀\n" };
for (const [what, options, shares] of [
  ["texts as headers, such as those of OpenTelemetry,", { headers: trace }, true],
  ["no headers in an object", { headers: {} }, true],
  ["a key of 1,024 bytes", { key: "é".repeat(512) }, true],
  ["a key with a pair of surrogates", { key: "😀" }, true],
  ["a number as a header", { headers: { n: 1e-320 } }, false],
  ["an object as a header", { headers: deep }, false],
  ["a list as headers", { headers: ["a"] }, false],
  ["a text as headers", { headers: "a" }, false],
  ["a NUL in a header", { headers: { h: "a\0" } }, false],
  ["a NUL in the name of a header", { headers: { "a\0": "" } }, false],
  ["half of a surrogate pair in a header", { headers: { h: half } }, false],
  ["headers of more than 64 KiB", { headers: { h: "é".repeat(32_768) } }, false],
  ["a key of 1,026 bytes", { key: "é".repeat(513) }, false],
  ["a NUL in the key", { key: "a\0" }, false],
  ["half of a surrogate pair in the key", { key: half }, false],
  ["a number as the key", { key: 5 }, false],
]) {
  test(`a message with ${what} ${shares ? "shares a request" : "goes alone, in its turn"}`, async () => {
    const f = await connected();
    const s = f.tw.stream("s");
    const like = { key: options.key };
    for (const [value, more] of [[1, like], [2, options], [3, options], [4, like]]) void s.publish(value, more);
    await settle();
    assert.deepEqual(f.socket.sent.map((m) => m.messages?.map((each) => each.payload).join() ?? m.payload), shares ? ["1,2,3,4"] : ["1", "2", "3", "4"]);
  });
}

test("a batch that is larger than the server takes goes in parts, in the order of the calls, also after a reconnect", async () => {
  mock.method(Math, "random", () => 0);
  const f = fake();
  const s = f.tw.stream("s");
  const calls = [];
  const publish = (n, options) => calls.push(watch(s.publish(`${n}${"x".repeat(200)}`, options)));
  for (let n = 0; n < 7; n++) publish(n);
  publish(7, { key: "k" });
  const limited = { ...hello, limits: { message_bytes: 900 } };
  const order = (socket) => socket.sent.flatMap((m) => m.messages ?? [m]).map((m) => Number(m.payload[1]));
  let socket = await f.up(limited);
  assert.ok(socket.sent.length < 8);
  assert.deepEqual(order(socket), [0, 1, 2, 3, 4, 5, 6, 7]);
  socket.cut();
  publish(8);
  mock.timers.tick(0);
  socket = await f.up(limited);
  assert.deepEqual(order(socket), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  let position = 0;
  for (const m of socket.sent) {
    socket.ok(m, { position: position + 1 });
    position += m.messages?.length ?? 1;
  }
  await settle();
  assert.deepEqual(calls.map((call) => call.value.position), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test("the parts of a batch that is refused come before what waits", async () => {
  const f = await connected({ maxPending: 1 });
  const s = f.tw.stream("s");
  for (const [n, key] of [[1], [2], [3, "k"], [4, "k"]]) void s.publish(n, { key });
  await settle();
  f.socket.error(f.socket.sent[0], "invalid");
  for (let i = 1; i < 4; i++) {
    await settle();
    assert.equal(f.socket.sent.length, i + 1);
    f.socket.ok(f.socket.sent[i], { position: i });
  }
  assert.deepEqual(f.socket.sent.slice(1).map((m) => m.payload ?? m.messages.length), ["1", "2", 2]);
});

test("a batch that may be stored is not sent in another way", async () => {
  const f = await connected();
  const calls = [1, 2].map((n) => watch(f.tw.stream("s").publish(n)));
  await settle();
  f.socket.error(f.socket.sent[0], "sequence_too_old");
  await settle();
  for (const call of calls) assert.ok(call.error instanceof OutcomeUnknown);
  assert.equal(f.socket.sent.length, 1);
});

for (const code of ["unavailable", "overloaded", "busy", "rate_limited", "not_stored", "outcome_unknown"]) {
  test(`after ${code} a publish is sent again`, async () => {
    mock.method(Math, "random", () => 0.5);
    const f = await connected();
    const call = watch(f.tw.stream("s").publish(1));
    await settle();
    f.socket.error(f.socket.sent[0], code, { retryable: code !== "outcome_unknown", ...(code === "rate_limited" && { retry_after_ms: 900 }) });
    await settle();
    mock.timers.tick(code === "rate_limited" ? 899 : 124);
    await settle();
    assert.equal(f.socket.sent.length, 1);
    mock.timers.tick(1);
    await settle();
    assert.deepEqual(f.socket.sent[1], f.socket.sent[0]);
    f.socket.ok(f.socket.sent[1], { position: 5 });
    await settle();
    assert.equal(call.value.position, 5);
  });
}

test("a pause holds later publishes of the stream, and no others", async () => {
  mock.method(Math, "random", () => 0.5);
  const f = await connected();
  void f.tw.stream("s").publish(1);
  await settle();
  f.socket.error(f.socket.sent[0], "unavailable", { retryable: true });
  void f.tw.stream("s").publish(2);
  void f.tw.stream("t").publish(3);
  await settle();
  assert.deepEqual(f.socket.sent.map((m) => m.payload), ["1", "3"]);
  mock.timers.tick(125);
  await settle();
  assert.deepEqual(f.socket.sent.map((m) => m.payload), ["1", "3", "1", "2"]);
});

test("a call that was never sent fails with Timeout, one that was sent with OutcomeUnknown", async () => {
  const f = fake();
  const never = watch(f.tw.stream("s").publish(1, { timeout: "1s" }));
  await settle();
  mock.timers.tick(1_000);
  await settle();
  assert.ok(never.error instanceof Timeout);
  const sent = watch(f.tw.stream("s").publish(2, { timeout: "1s" }));
  await f.up();
  assert.deepEqual(f.socket.sent.map((m) => m.payload), ["2"]);
  mock.timers.tick(1_000);
  await settle();
  assert.ok(sent.error instanceof OutcomeUnknown);
});

test("outcome_unknown as the last answer is OutcomeUnknown", async () => {
  mock.method(Math, "random", () => 1);
  const f = await connected();
  const call = watch(f.tw.stream("s").publish(1, { timeout: 200 }));
  await settle();
  f.socket.error(f.socket.sent[0], "outcome_unknown");
  mock.timers.tick(200);
  await settle();
  assert.ok(call.error instanceof OutcomeUnknown);
});

test("a call that ends while its request waits for a pause has the last error", async () => {
  mock.method(Math, "random", () => 1);
  const f = await connected();
  const call = watch(f.tw.stream("s").publish(1, { timeout: 200 }));
  await settle();
  f.socket.error(f.socket.sent[0], "unavailable", { retryable: true });
  mock.timers.tick(200);
  await settle();
  assert.equal(call.error.code, "unavailable");
});

test("a signal ends one call of a batch, and not the others", async () => {
  const f = await connected();
  const controller = new AbortController();
  const s = f.tw.stream("s");
  const calls = [watch(s.publish(1, { signal: controller.signal })), watch(s.publish(2))];
  controller.abort();
  await settle();
  assert.equal(calls[0].error.name, "AbortError");
  assert.deepEqual(f.socket.sent.map((m) => m.payload), ["2"]);
  f.socket.ok(f.socket.sent[0], { position: 3 });
  await settle();
  assert.equal(calls[1].value.position, 3);
  await assert.rejects(s.publish(3, { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("a call of a batch that ends after it was sent leaves the positions of the others", async () => {
  const f = await connected();
  const controller = new AbortController();
  const s = f.tw.stream("s");
  void s.publish(1, { signal: controller.signal }).catch(() => {});
  const second = watch(s.publish(2));
  await settle();
  controller.abort();
  f.socket.ok(f.socket.sent[0], { position: 3, count: 2 });
  await settle();
  assert.equal(second.value.position, 4);
});

test("no more requests wait for an answer than maxPending", async () => {
  const f = await connected({ batch: false, maxPending: 2 });
  for (let i = 0; i < 5; i++) void f.tw.stream("s").publish(i);
  await settle();
  assert.equal(f.socket.sent.length, 2);
  f.socket.ok(f.socket.sent[0], { position: 1 });
  await settle();
  assert.deepEqual(f.socket.sent.map((m) => m.payload), ["0", "1", "2"]);
});

test("a call that ends while its batch waits for room is not in it", async () => {
  const f = await connected({ maxPending: 1, maxPendingBytes: 500 });
  void f.tw.stream("s").publish("x".repeat(400));
  await settle();
  const t = f.tw.stream("t");
  const ends = watch(t.publish(1, { timeout: 10 }));
  void t.publish(2);
  await settle();
  mock.timers.tick(10);
  await settle();
  assert.ok(ends.error instanceof Timeout);
  f.socket.ok(f.socket.sent[0], { position: 1 });
  await settle();
  assert.deepEqual(f.socket.sent.slice(1).map((m) => m.payload), ["2"]);
});

test("no more bytes wait for an answer than maxPendingBytes", async () => {
  const f = await connected({ batch: false, maxPendingBytes: 2_000 });
  for (let i = 0; i < 3; i++) void f.tw.stream("s").publish("x".repeat(800));
  await settle();
  assert.equal(f.socket.sent.length, 2);
  f.socket.ok(f.socket.sent[0], { position: 1 });
  await settle();
  assert.equal(f.socket.sent.length, 3);
});

test("what is larger than the server takes fails, alone", async () => {
  const f = fake();
  const s = f.tw.stream("s");
  const calls = [watch(s.publish("x".repeat(2_000))), watch(s.publish("small"))];
  await f.up({ ...hello, limits: { message_bytes: 1_000 } });
  assert.ok(calls[0].error instanceof TooBig);
  assert.equal(calls[0].error.code, "too_big");
  assert.equal(calls[0].error.name, "TooBig");
  assert.deepEqual(f.socket.sent.map((m) => m.payload), ['"small"']);
});

test("a call that ends frees its place and its bytes, and a late answer is for nobody", async () => {
  const f = await connected({ batch: false, maxPending: 1, maxPendingBytes: 2_000 });
  const s = f.tw.stream("s");
  const controller = new AbortController();
  const ends = [watch(s.publish("x".repeat(1_900), { timeout: 10 })), watch(s.publish("y".repeat(1_900), { signal: controller.signal }))];
  const last = watch(s.publish("z".repeat(1_900)));
  await settle();
  assert.equal(f.socket.sent.length, 1);
  mock.timers.tick(10);
  await settle();
  assert.equal(f.socket.sent.length, 2);
  controller.abort();
  await settle();
  assert.equal(f.socket.sent.length, 3);
  for (const position of [1, 2, 3]) f.socket.ok(f.socket.sent[position - 1], { position });
  await settle();
  assert.equal(ends[0].error.code, "outcome_unknown");
  assert.equal(ends[1].error.name, "AbortError");
  assert.equal(last.value.position, 3);
});

test("a timeout without a connection says why there is none", async () => {
  const f = fake();
  const early = watch(f.tw.stream("s").publish(1, { timeout: 5 }));
  await settle();
  mock.timers.tick(5);
  await settle();
  assert.match(early.error.message, /there is no connection yet/);
  const call = watch(f.tw.stream("s").publish(1, { timeout: 1_000 }));
  await settle();
  f.socket.onerror({ message: "Unexpected server response: 404" });
  f.socket.cut();
  await settle();
  mock.timers.tick(1_000);
  await settle();
  assert.ok(call.error instanceof Timeout);
  assert.equal(call.error.message, "not sent in time: no connection to ws://server.test/ws: Unexpected server response: 404");
  assert.equal(call.error.cause, f.states.find((state) => state.name === "waiting").error);
});

test("the outcome that is not known says why the connection is lost", async () => {
  const f = await connected();
  const call = watch(f.tw.stream("s").publish(1, { timeout: 1_000 }));
  await settle();
  f.socket.cut(1011, "broken");
  await settle();
  mock.timers.tick(1_000);
  await settle();
  assert.ok(call.error instanceof OutcomeUnknown);
  assert.match(call.error.cause.message, /1011 broken/);
});

test("publishAll is one request, all or none", async () => {
  const f = await connected();
  const call = watch(f.tw.stream("s").publishAll([1, 2], { key: "k" }));
  await settle();
  assert.deepEqual(f.socket.sent[0].messages, [{ payload: "1", key: "k" }, { payload: "2", key: "k" }]);
  f.socket.ok(f.socket.sent[0], { position: 3, count: 2, partition: 1 });
  await settle();
  assert.deepEqual(call.value, { position: 3, count: 2, partition: 1, duplicate: false });
});

test("an error of the codec is the error of the call", async () => {
  const f = await connected();
  await assert.rejects(f.tw.stream("s").publish(undefined), TypeError);
  await assert.rejects(f.tw.queue("q").enqueue(1n), TypeError);
});

test("bytes go as base64", async () => {
  const { bytes } = await import("#client");
  const f = await connected();
  void f.tw.stream("s", { codec: bytes }).publish(Uint8Array.of(0xff, 0, 1));
  await settle();
  assert.equal(f.socket.sent[0].payload_base64, "/wAB");
});
