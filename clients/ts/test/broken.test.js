// A server that does not keep the protocol: the client survives it, says so, and tries again.
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { fake, hello, settle, watch } from "./fake.js";

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  mock.method(Math, "random", () => 0.5);
});
afterEach(() => {
  mock.reset();
  mock.timers.reset();
});

for (const [what, frame] of [
  ["no limits", { ...hello, limits: undefined }],
  ["limits that are none", { ...hello, limits: { message_bytes: "many" } }],
  ["null", null],
]) {
  test(`a first message with ${what} is a failed attempt`, async () => {
    const f = fake();
    const call = watch(f.tw.stream("s").publish(1, { timeout: 0 }));
    await f.up(frame);
    assert.equal(f.tw.state.name, "waiting");
    assert.match(f.tw.state.error.message, /the server has sent a frame that is not valid \((hello|undefined)\): /);
    assert.equal(f.socket.closed, 1000);
    mock.timers.tick(f.tw.state.retryIn);
    await f.up();
    f.socket.ok(f.socket.sent[0], { position: 1 });
    await settle();
    assert.equal(call.value.position, 1);
  });
}

test("an error without a code, and what is no JSON, end the connection and lose no call", async () => {
  const f = fake();
  const call = watch(f.tw.stream("s").publish(1, { timeout: 0 }));
  for (const broken of [
    (socket) => socket.say({ type: "error", id: socket.sent[0].id }),
    (socket) => socket.say({ type: "error", subscription: "1", code: 5 }),
    (socket) => socket.onmessage({ data: "{" }),
  ]) {
    const socket = await f.up();
    broken(socket);
    await settle();
    assert.equal(f.tw.state.name, "waiting");
    assert.match(f.tw.state.error.message, /is not valid/);
    mock.timers.tick(f.tw.state.retryIn);
  }
  const socket = await f.up();
  socket.ok(socket.sent[0], { position: 7 });
  await settle();
  assert.equal(call.value.position, 7);
});

/** Lets time pass on a connection whose server is not silent. */
function pass(socket, ms) {
  for (let left = ms; left > 0; left -= 30_000) {
    mock.timers.tick(Math.min(left, 30_000));
    socket.say({ type: "pong" });
  }
}

for (const told of [-5, 0, "soon", null, 2 ** 40]) {
  const pause = told > 0 ? 86_400_000 : 125;

  test(`a server that wants a request again after ${told} ms gets it after ${pause} ms`, async () => {
    const f = fake();
    void f.tw.stream("s").publish(1, { timeout: 0 });
    const socket = await f.up();
    socket.error(socket.sent[0], "unavailable", { retryable: true, retry_after_ms: told });
    pass(socket, pause - 1);
    await settle();
    assert.equal(socket.of("publish").length, 1);
    pass(socket, 1);
    await settle();
    assert.equal(socket.of("publish").length, 2);
  });

  test(`a server that wants a consumer again after ${told} ms gets it after ${pause} ms`, async () => {
    const f = fake();
    const { ready } = f.tw.queue("q").work(() => {});
    const socket = await f.up();
    socket.ok(socket.sent[0]);
    await ready;
    socket.say({ type: "error", queue: "q", code: "unavailable", message: "", retryable: true, retry_after_ms: told });
    pass(socket, pause - 1);
    await settle();
    assert.equal(socket.of("consume").length, 1);
    pass(socket, 1);
    await settle();
    assert.equal(socket.of("consume").length, 2);
  });
}

test("a pause before the next connection is not longer than a timer can be", async () => {
  const f = fake();
  void f.tw.stream("s").publish(1, { timeout: 0 });
  await f.up();
  f.socket.cut(1001, `retry_after_ms=${"9".repeat(400)}`);
  assert.equal(f.tw.state.retryIn, 86_400_000);
  mock.timers.tick(86_399_999);
  assert.equal(f.tw.state.name, "waiting");
  mock.timers.tick(1);
  await f.up();
  f.socket.cut(1001, "retry_after_ms=0");
  assert.ok(f.tw.state.retryIn > 1);
});

test("no timer is longer than a timer can be", async (t) => {
  const waits = [];
  const { setTimeout } = globalThis;
  globalThis.setTimeout = (fn, ms) => waits.push(ms) && setTimeout(fn, ms);
  t.after(() => (globalThis.setTimeout = setTimeout));
  const f = fake();
  void f.tw.stream("s").publish(1, { timeout: "60d" });
  const worker = f.tw.queue("q").work(() => new Promise(() => {}), { lease: "90d" });
  const socket = await f.up();
  socket.ok(socket.of("consume")[0]);
  await worker.ready;
  socket.say({ type: "delivery", queue: "q", delivery: "d", attempt: 1, position: 1, time: "", payload: "1" });
  await settle();
  void worker.stop({ drain: "60d" });
  socket.cut(1001, `retry_after_ms=${2 ** 40}`);
  assert.ok(waits.length > 4);
  assert.deepEqual(waits.filter((ms) => !(ms >= 0 && ms < 2 ** 31)), []);
});

const query = { items: [] };
for (const [type, call, good] of [
  ["publish", (tw) => tw.stream("s").publish(1), { position: 1 }],
  ["publish", (tw) => tw.stream("s").publishAll([1, 2]), { position: 1 }],
  ["enqueue", (tw) => tw.queue("q").enqueue(1), { position: 1 }],
  ["append", (tw) => tw.events().append({ type: "t" }), { positions: [1] }],
  ["query", (tw) => tw.events().query(query).next(), { events: [], next: 0 }],
  ["project", (tw) => tw.events().project([query]), { counts: [0], condition: { query } }],
  ["commit", (tw) => tw.stream("s").subscribe({ group: "g" }).commit(3), { position: 3 }],
  ["subscribe", (tw) => tw.stream("s").subscribe().ready, { position: 0 }],
  ["subscribe", (tw) => tw.events().subscribe(query).ready, { position: 0 }],
]) {
  test(`an ok of ${type} without what it must have (${Object.keys(good)}) ends the connection, and the request is repeated`, async () => {
    const f = fake({ timeout: 0 });
    const result = watch(call(f.tw));
    const first = await f.up();
    const [request] = first.of(type);
    for (const subscribe of first.of("subscribe")) if (type !== "subscribe") first.ok(subscribe, { position: 0 });
    first.ok(request, { position: "1", duplicate: true });
    await settle();
    assert.equal(result.done, false);
    assert.match(f.tw.state.error.message, /the server has sent a frame that is not valid \(ok\): \w+ is/);
    mock.timers.tick(f.tw.state.retryIn);
    const second = await f.up();
    assert.deepEqual(second.of(type).map(({ subscription, ...fields }) => fields)[0], (({ subscription, ...fields }) => fields)(request));
    second.ok(second.of(type)[0], good);
    await settle();
    assert.equal(result.done, true);
    assert.equal(result.error, undefined);
  });
}

test("a chat in a stored room is repeated if its ok has no position", async () => {
  const f = fake({ timeout: 0 });
  const joined = watch(f.tw.room("r").join());
  let socket = await f.up();
  socket.ok(socket.of("join")[0], { position: 0 });
  await settle();
  const said = watch(joined.value.chat("hello"));
  await settle();
  socket.ok(socket.of("chat")[0]);
  assert.equal(f.tw.state.name, "waiting");
  mock.timers.tick(f.tw.state.retryIn);
  socket = await f.up();
  socket.ok(socket.of("join")[0], { position: 0 });
  await settle();
  socket.ok(socket.of("chat")[0], { position: 1 });
  await settle();
  assert.deepEqual(said.value, { position: 1 });
});

test("a server that sends more messages than credits is dropped, and nothing is missing", async () => {
  const f = fake();
  const sub = f.tw.stream("s").subscribe({ after: 0, credits: 2 });
  const first = await f.up();
  const { subscription } = first.of("subscribe")[0];
  const message = (position) => ({ type: "message", subscription, position, time: "", payload: `${position}` });
  first.ok(first.of("subscribe")[0], { position: 0 });
  first.say(message(1));
  await settle();
  assert.equal((await sub.next()).value.value, 1);
  assert.equal(first.of("credit")[0].n, 1);
  first.say(message(2));
  first.say({ type: "position", subscription, position: 5 });
  first.say(message(6));
  assert.equal(f.tw.state.name, "connected");
  first.say(message(7));
  assert.equal(f.tw.state.name, "waiting");
  assert.match(f.tw.state.error.message, /no credits/);
  mock.timers.tick(f.tw.state.retryIn);
  const second = await f.up();
  const [again] = second.of("subscribe");
  assert.equal(again.after, 1);
  second.ok(again, { position: 1 });
  for (const position of [2, 6]) second.say({ ...message(position), subscription: again.subscription });
  assert.equal((await sub.next()).value.value, 2);
  assert.equal((await sub.next()).value.value, 6);
  assert.equal(f.tw.state.name, "connected");
});

test("a server that sends many more deliveries than credits is dropped", async () => {
  const f = fake();
  const worker = f.tw.queue("q").work(() => new Promise(() => {}));
  const socket = await f.up();
  socket.ok(socket.of("consume")[0]);
  await worker.ready;
  for (let i = 1; i <= 5; i++) socket.say({ type: "delivery", queue: "q", delivery: `d${i}`, attempt: 1, position: i, time: "", payload: "1" });
  assert.match(f.tw.state.error.message, /no credits/);
});
