import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { connect, SignedOut } from "#client";
import { fake, hello, settle, watch } from "./fake.js";

beforeEach(() => mock.timers.enable({ apis: ["setTimeout", "Date"] }));
afterEach(() => mock.reset());
afterEach(() => mock.timers.reset());

const names = ({ states }) => states.map((state) => state.name);

test("nothing happens before the first use", async () => {
  const f = fake();
  await settle();
  assert.equal(f.sockets.length, 0);
  assert.equal(f.tw.state.name, "idle");
});

test("a first use connects, with the subprotocol, and sends nothing before hello", async () => {
  const f = fake();
  void f.tw.stream("s").publish(1);
  await settle();
  assert.deepEqual(f.socket.protocols, ["tidewire.v1"]);
  assert.equal(f.socket.sent.length, 0);
  await f.up();
  assert.deepEqual(names(f), ["connecting", "connected"]);
  assert.equal(f.socket.of("publish").length, 1);
});

test("pauses are random, double each time, and end at 20 s", async () => {
  mock.method(Math, "random", () => 0.5);
  const f = fake();
  void f.tw.stream("s").publish(1, { timeout: 0 });
  const pauses = [];
  for (let i = 0; i < 9; i++) {
    await settle();
    f.socket.cut();
    await settle();
    pauses.push(f.states.at(-1).retryIn);
    mock.timers.tick(f.states.at(-1).retryIn);
  }
  assert.deepEqual(pauses, [125, 250, 500, 1000, 2000, 4000, 8000, 10000, 10000]);
});

test("pauses begin anew after 10 s of a connection", async () => {
  mock.method(Math, "random", () => 0.5);
  const f = fake();
  void f.tw.stream("s").publish(1, { timeout: 0 });
  for (const [stays, pause] of [[0, 125], [0, 250], [9_999, 500], [10_000, 125]]) {
    await f.up();
    mock.timers.tick(stays);
    f.socket.cut();
    await settle();
    assert.equal(f.states.at(-1).retryIn, pause);
    mock.timers.tick(pause);
  }
});

test("an attempt that takes 10 s has failed", async () => {
  const f = fake();
  void f.tw.stream("s").publish(1, { timeout: 0 });
  await settle();
  mock.timers.tick(9_999);
  await settle();
  assert.equal(f.tw.state.name, "connecting");
  mock.timers.tick(1);
  assert.equal(f.tw.state.name, "waiting");
  assert.equal(f.socket.closed, 1000);
});

test("a server that stops says when to come back", async () => {
  const f = fake();
  void f.tw.stream("s").publish(1, { timeout: 0 });
  await f.up();
  f.socket.cut(1001, "stopping, retry_after_ms=1234");
  assert.equal(f.tw.state.retryIn, 1234);
  mock.timers.tick(1234);
  mock.method(Math, "random", () => 0.5);
  await f.up();
  f.socket.cut(1001, "stopping");
  assert.equal(f.tw.state.retryIn, 1000);
});

test("too many connections wait 5 s more", async () => {
  mock.method(Math, "random", () => 0);
  const f = fake();
  void f.tw.stream("s").publish(1, { timeout: 0 });
  await f.up();
  f.socket.cut(4429);
  assert.equal(f.tw.state.retryIn, 5_000);
});

test("4403 ends the client, and everything that waits", async () => {
  const f = fake();
  const publish = watch(f.tw.stream("s").publish(1));
  const next = watch(f.tw.stream("s").subscribe().next());
  await f.up();
  f.socket.cut(4403, "revoked");
  await settle();
  assert.ok(publish.error instanceof SignedOut);
  assert.ok(next.error instanceof SignedOut);
  assert.ok(f.states.at(-1).error instanceof SignedOut);
  await assert.rejects(f.tw.stream("s").publish(2), SignedOut);
});

test("a token goes as a header to a class that was given, and as auth else", async () => {
  const f = fake({ token: "t1" });
  void f.tw.stream("s").publish(1);
  await f.up();
  assert.deepEqual(f.socket.init, { headers: { Authorization: "Bearer t1" } });
  assert.equal(f.socket.of("auth").length, 0);

  const sockets = [];
  class Page {
    sent = [];
    constructor() {
      sockets.push(this);
    }
    send(data) {
      this.sent.push(JSON.parse(data));
    }
    close() {}
  }
  globalThis.WebSocket = Page;
  try {
    const tw = connect("ws://server.test/ws", { token: "t2" });
    void tw.stream("s").publish(1);
    await settle();
    sockets[0].onmessage({ data: JSON.stringify({ ...hello, authenticated: false }) });
    await settle();
    assert.deepEqual(sockets[0].sent, [{ type: "auth", id: "auth", token: "t2" }]);
    sockets[0].onmessage({ data: '{"type":"ok","id":"auth"}' });
    await settle();
    assert.equal(sockets[0].sent[1].type, "publish");
  } finally {
    delete globalThis.WebSocket;
  }
});

test("the callback is asked before each attempt, and is told of a refusal", async () => {
  mock.method(Math, "random", () => 0);
  const asked = [];
  const f = fake({ token: ({ refused }) => `t${asked.push(refused)}` });
  void f.tw.stream("s").publish(1, { timeout: 0 });
  await f.up();
  f.socket.cut(4401);
  mock.timers.tick(0);
  await f.up();
  f.socket.cut(1006);
  mock.timers.tick(0);
  await f.up();
  assert.deepEqual(asked, [false, true, false]);
});

test("a callback that throws fails the attempt, or ends the client", async () => {
  mock.method(Math, "random", () => 0);
  let turn = 0;
  const f = fake({
    token: async () => {
      if (turn++ === 0) throw new Error("no network");
      throw new SignedOut();
    },
  });
  const publish = watch(f.tw.stream("s").publish(1, { timeout: 0 }));
  await settle();
  assert.equal(f.states.at(-1).error.message, "no network");
  mock.timers.tick(0);
  await settle();
  assert.equal(f.tw.state.name, "closed");
  assert.ok(publish.error instanceof SignedOut);
});

test("a token that ends soon is renewed on the connection", async () => {
  let n = 0;
  const f = fake({ token: () => `t${++n}` });
  void f.tw.stream("s").publish(1);
  await f.up();
  f.socket.say({ type: "expiring", expires_in_ms: 1000 });
  await settle();
  assert.deepEqual(f.socket.of("auth"), [{ type: "auth", id: "auth", token: "t2" }]);
  f.socket.say({ type: "ok", id: "auth" });
  await settle();
  assert.equal(f.tw.state.name, "connected");
});

for (const nothing of [undefined, null, "", 7]) {
  test(`a token callback that returns ${JSON.stringify(nothing)} fails the attempt`, async () => {
    let token = nothing;
    const f = fake({ token: () => token });
    const call = watch(f.tw.stream("s").publish(1, { timeout: 0 }));
    await settle();
    assert.equal(f.sockets.length, 0);
    assert.match(f.tw.state.error.message, /there is no token/);
    token = "good";
    mock.timers.tick(f.tw.state.retryIn);
    await f.up();
    f.socket.ok(f.socket.sent[0], { position: 1 });
    await settle();
    assert.equal(call.value.position, 1);
  });
}

test("a refusal is told until there is a token", async () => {
  mock.method(Math, "random", () => 0);
  const asked = [];
  const f = fake({
    token({ refused }) {
      if (asked.push(refused) === 2) throw new Error("no network");
      return "t";
    },
  });
  void f.tw.stream("s").publish(1, { timeout: 0 });
  await f.up();
  f.socket.cut(4401);
  mock.timers.tick(0);
  await settle();
  mock.timers.tick(0);
  await settle();
  assert.deepEqual(asked, [false, true, true]);
});

test("a renewal that throws, hangs or is refused is tried again, until the server takes a token", async () => {
  mock.method(Math, "random", () => 0.5);
  const signals = [];
  const turns = [
    () => "t1",
    () => {
      throw new Error("no network");
    },
    () => new Promise(() => {}),
    () => "t4",
    () => "t5",
  ];
  const asked = [];
  const f = fake({
    token({ refused, signal }) {
      asked.push(refused);
      return turns[signals.push(signal) - 1]();
    },
  });
  const errors = [];
  f.tw.on("error", (error) => errors.push(error.message));
  void f.tw.stream("s").publish(1, { timeout: 0 });
  const socket = await f.up();
  socket.say({ type: "expiring", expires_in_ms: 60_000 });
  await settle();
  socket.say({ type: "expiring", expires_in_ms: 60_000 });
  await settle();
  assert.equal(asked.length, 2);
  mock.timers.tick(125);
  await settle();
  assert.equal(asked.length, 3);
  mock.timers.tick(10_000);
  assert.ok(signals[2].aborted);
  await settle();
  mock.timers.tick(250);
  await settle();
  assert.equal(socket.of("auth").at(-1).token, "t4");
  socket.error({ id: "auth" }, "invalid_token");
  mock.timers.tick(500);
  await settle();
  assert.equal(socket.of("auth").at(-1).token, "t5");
  socket.ok({ id: "auth" });
  socket.say({ type: "pong" });
  mock.timers.tick(30_000);
  await settle();
  assert.deepEqual(asked, [false, false, false, false, true]);
  assert.deepEqual(errors, ["no network", "no new token within 10 s", "invalid_token"]);
  assert.equal(f.tw.state.name, "connected");
});

test("a renewal ends with its connection", async () => {
  let asked = 0;
  const f = fake({
    token() {
      if (asked++) throw new Error("no network");
      return "t";
    },
  });
  void f.tw.stream("s").publish(1, { timeout: 0 });
  await f.up();
  f.socket.say({ type: "expiring", expires_in_ms: 60_000 });
  await settle();
  assert.equal(asked, 2);
  f.socket.ok(f.socket.sent[0], { position: 1 });
  await f.tw.close();
  mock.timers.tick(60_000);
  await settle();
  assert.equal(asked, 2);
});

test("silence is answered with a ping, and then with another connection", async () => {
  const f = fake();
  void f.tw.stream("s").subscribe();
  await f.up();
  mock.timers.tick(34_999);
  assert.equal(f.socket.of("ping").length, 0);
  mock.timers.tick(1);
  assert.equal(f.socket.of("ping").length, 1);
  f.socket.say({ type: "pong" });
  mock.timers.tick(10_000);
  assert.equal(f.tw.state.name, "connected");
  mock.timers.tick(35_000);
  assert.equal(f.socket.of("ping").length, 2);
  mock.timers.tick(10_000);
  assert.equal(f.tw.state.name, "waiting");
});

test("close ends iterations without an error, and later calls with Closed", async () => {
  const f = fake();
  const next = watch(f.tw.stream("s").subscribe().next());
  await f.up();
  f.socket.ok(f.socket.of("subscribe")[0], { position: 0 });
  await settle();
  await f.tw.close();
  await settle();
  assert.deepEqual(next.value, { done: true, value: undefined });
  await assert.rejects(f.tw.stream("s").publish(1), { code: "closed" });
  assert.equal(f.socket.closed, 1000);
});

test("close waits for answers, and no longer than 5 s", async () => {
  const f = fake();
  const publish = watch(f.tw.stream("s").publish(1));
  await f.up();
  const closing = watch(f.tw.close());
  await settle();
  assert.equal(closing.done, false);
  mock.timers.tick(5_000);
  await settle();
  assert.equal(closing.done, true);
  assert.equal(publish.error.code, "closed");
});

test("an error of a listener is not silent", async () => {
  const f = fake();
  const seen = [];
  f.tw.on("error", (error) => seen.push(error.message));
  f.tw.on("state", () => {
    throw new Error("of the program");
  });
  void f.tw.stream("s").publish(1);
  await settle();
  assert.deepEqual(seen, ["of the program"]);
});

test("an address that is none, and a platform without WebSocket", () => {
  assert.throws(() => connect("ftp://x", { WebSocket: class {} }), TypeError);
  if (!globalThis.WebSocket) assert.throws(() => connect("ws://x"), /give the option WebSocket/);
});

test("a listener of errors that fails is an unhandled rejection, once", async () => {
  const rejected = [];
  const others = process.listeners("unhandledRejection");
  process.removeAllListeners("unhandledRejection");
  process.on("unhandledRejection", (error) => rejected.push(error.message));
  const f = fake();
  let calls = 0;
  f.tw.on("error", () => {
    if (++calls < 100) throw new Error("the listener");
  });
  f.tw.on("state", () => {
    throw new Error("the state");
  });
  const call = watch(f.tw.stream("s").publish(1));
  await settle();
  process.removeAllListeners("unhandledRejection");
  for (const other of others) process.on("unhandledRejection", other);
  assert.equal(calls, 1);
  assert.deepEqual(rejected, ["the listener"]);
  assert.ok(!call.done);
});
