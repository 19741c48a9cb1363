import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { bytes, Fenced, Forbidden, HistoryLost, InvalidMessage, MessageTooLarge, text, TooOld } from "#client";
import { fake, settle, watch } from "./fake.js";

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  mock.method(Math, "random", () => 0);
});
afterEach(() => {
  mock.reset();
  mock.timers.reset();
});

const time = "2026-11-26T08:05:07.089123Z";

async function subscribed(options, typed, position = 0) {
  const f = fake();
  const sub = f.tw.stream("s", typed).subscribe(options);
  await f.up();
  f.request = f.socket.of("subscribe")[0];
  f.socket.ok(f.request, options?.share ? {} : { position });
  await sub.ready;
  /** Messages of the subscription that the server has now. */
  f.message = (at, value = at, more = {}) => f.frame("message", { position: at, time, payload: JSON.stringify(value), ...more });
  f.frame = (type, fields) => f.socket.say({ type, stream: "s", subscription: f.socket.of("subscribe").at(-1).subscription, ...fields });
  f.again = async () => {
    f.socket.cut();
    mock.timers.tick(0);
    await f.up();
    return f.socket.of("subscribe")[0];
  };
  return { f, sub };
}

async function take(sub, n) {
  const values = [];
  for (let i = 0; i < n; i++) values.push((await sub.next()).value.value);
  return values;
}

test("a message has what the server says of it", async () => {
  const { f, sub } = await subscribed();
  assert.equal(sub.position, 0);
  f.message(3, { a: 1 }, { key: "k", headers: { h: "1" } });
  const { value } = await sub.next();
  assert.deepEqual({ ...value }, { value: { a: 1 }, position: 3, time, key: "k", headers: { h: "1" }, partition: undefined });
  assert.equal(sub.position, 3);
});

test("where it starts, and what it filters", async () => {
  const f = fake();
  const s = f.tw.stream("s");
  s.subscribe({ at: new Date(0), keys: ["a"], headers: { h: "1" }, credits: 10 });
  s.subscribe({ from: "start" });
  s.subscribe({ group: "g" });
  s.subscribe({ group: "g", share: true });
  await f.up();
  const sent = f.socket.of("subscribe").map(({ id, subscription, ...fields }) => fields);
  assert.deepEqual(sent, [
    { type: "subscribe", credits: 10, stream: "s", keys: ["a"], headers: { h: "1" }, at: "1970-01-01T00:00:00.000Z" },
    { type: "subscribe", credits: 256, stream: "s", from: "start" },
    { type: "subscribe", credits: 256, stream: "s", group: "g" },
    { type: "subscribe", credits: 256, stream: "s", share: true, group: "g" },
  ]);
});

test("calls keep their order: a subscription between two publishes", async () => {
  const f = fake();
  void f.tw.stream("s").publish(1);
  f.tw.stream("s").subscribe();
  void f.tw.stream("s").publish(2);
  await f.up();
  assert.deepEqual(f.socket.sent.map((m) => m.type), ["publish", "subscribe", "publish"]);
});

test("credits are granted again when the program has used half", async () => {
  const { f, sub } = await subscribed({ credits: 4 });
  for (let i = 1; i <= 4; i++) f.message(i);
  await settle();
  assert.equal(f.socket.of("credit").length, 0);
  await take(sub, 1);
  assert.equal(f.socket.of("credit").length, 0);
  await take(sub, 1);
  assert.deepEqual(f.socket.of("credit"), [{ type: "credit", subscription: f.request.subscription, n: 2 }]);
});

test("after a reconnect it goes on after what the program has, and nothing comes twice", async () => {
  const { f, sub } = await subscribed({ after: 0 });
  for (let i = 1; i <= 3; i++) f.message(i);
  assert.deepEqual(await take(sub, 1), [1]);
  const request = await f.again();
  assert.equal(request.after, 1);
  assert.notEqual(request.subscription, f.request.subscription);
  f.socket.ok(request, { position: 1 });
  f.message(2);
  f.message(3);
  assert.deepEqual(await take(sub, 2), [2, 3]);
});

test("one that has handed out nothing goes on after its first position", async () => {
  const { f } = await subscribed({}, {}, 41);
  assert.equal((await f.again()).after, 41);
});

test("a group goes on after what the program has", async () => {
  const { f, sub } = await subscribed({ group: "g" }, {}, 5);
  f.message(6);
  await take(sub, 1);
  const request = await f.again();
  assert.equal(request.after, 6);
  assert.equal(request.group, undefined);
});

test("a position moves the place to go on, in the order of the messages", async () => {
  const { f, sub } = await subscribed({ keys: ["a"] });
  f.message(2);
  f.frame("position", { position: 9 });
  assert.equal(sub.position, 0);
  await take(sub, 1);
  assert.equal(sub.position, 2);
  const next = watch(sub.next());
  assert.equal(sub.position, 9);
  f.frame("position", { position: 12 });
  assert.equal(sub.position, 12);
  await settle();
  assert.equal(next.done, false);
  assert.equal((await f.again()).after, 12);
});

test("too_old ends it after the messages before, or is told and skipped", async () => {
  const { f, sub } = await subscribed({ after: 0 });
  f.message(1);
  f.frame("error", { code: "too_old", message: "dropped", retryable: false, oldest: 7 });
  assert.deepEqual(await take(sub, 1), [1]);
  await assert.rejects(sub.next(), (error) => error instanceof TooOld && error.oldest === 7 && error.name === "TooOld");
  assert.equal((await sub.next()).done, true);

  const gaps = [];
  const other = await subscribed({ after: 0, onGap: (gap) => gaps.push(gap) });
  other.f.frame("error", { code: "too_old", message: "dropped", retryable: false, oldest: 7 });
  const next = watch(other.sub.next());
  await settle();
  assert.deepEqual(gaps, [{ code: "too_old", oldest: 7, partition: undefined, position: undefined, size: undefined }]);
  assert.equal(other.f.socket.of("subscribe")[1].after, 6);
  other.f.message(7);
  await settle();
  assert.equal(next.value.value.value, 7);
});

test("too_old as the answer to subscribe", async () => {
  const f = fake();
  const sub = f.tw.stream("s").subscribe({ after: 1, onGap: "skip" });
  const ready = watch(sub.ready);
  await f.up();
  f.socket.error(f.socket.of("subscribe")[0], "too_old", { oldest: 5 });
  await settle();
  assert.equal(ready.done, false);
  assert.equal(f.socket.of("subscribe")[1].after, 4);
  f.socket.ok(f.socket.of("subscribe")[1], { position: 4 });
  await sub.ready;
});

test("history_lost ends it", async () => {
  const { f, sub } = await subscribed();
  f.frame("error", { code: "history_lost", message: "lost", retryable: false, last: 3 });
  await assert.rejects(sub.next(), (error) => error instanceof HistoryLost && error.last === 3);
});

test("unavailable does not end it", async () => {
  const { f, sub } = await subscribed();
  f.message(1);
  await take(sub, 1);
  f.frame("error", { code: "unavailable", message: "no database", retryable: true });
  const next = watch(sub.next());
  mock.timers.tick(0);
  await settle();
  assert.equal(f.socket.of("subscribe")[1].after, 1);
  f.socket.error(f.socket.of("subscribe")[1], "unavailable", { retryable: true });
  await settle();
  mock.timers.tick(0);
  await settle();
  f.socket.ok(f.socket.of("subscribe")[2], { position: 1 });
  f.message(2);
  await settle();
  assert.equal(next.value.value.value, 2);
});

test("an error at the start is that of ready and of the iteration", async () => {
  const f = fake();
  const sub = f.tw.stream("s").subscribe();
  await f.up();
  f.socket.error(f.socket.of("subscribe")[0], "not_found");
  await assert.rejects(sub.ready, { name: "NotFound" });
  await assert.rejects(sub.next(), { name: "NotFound" });
});

test("break, close and a signal end it, and tell the server", async () => {
  for (const how of ["break", "close", "signal"]) {
    const controller = new AbortController();
    const { f, sub } = await subscribed({ signal: controller.signal });
    f.message(1);
    f.message(2);
    for await (const m of sub) {
      assert.equal(m.position, 1);
      if (how === "break") break;
      if (how === "close") sub.close();
      else controller.abort();
    }
    assert.deepEqual(f.socket.of("unsubscribe"), [{ type: "unsubscribe", subscription: f.request.subscription }]);
    f.message(3);
    assert.equal((await sub.next()).done, true);
  }
});

test("a subscription that ends before its answer is ended on the server", async () => {
  const f = fake();
  const sub = f.tw.stream("s").subscribe();
  await f.up();
  sub.close();
  await settle();
  assert.equal(f.socket.of("unsubscribe").length, 1);
  await assert.rejects(sub.ready, { code: "closed" });
  const closed = f.tw.stream("s").subscribe();
  closed.close();
  await settle();
  assert.equal(f.socket.of("subscribe").length, 1);
});

test("what the codec refuses is thrown, and the iteration can go on; or it goes to onInvalid", async () => {
  const { f, sub } = await subscribed();
  f.frame("message", { position: 1, time, payload: "{" });
  await assert.rejects(sub.next(), (error) => error instanceof InvalidMessage && error.received.position === 1 && error.received.payload === "{");
  f.message(2);
  assert.deepEqual(await take(sub, 1), [2]);

  const invalid = [];
  const other = await subscribed({ onInvalid: (error) => invalid.push(error.received.position) }, { schema: { parse: (n) => (n > 1 ? n : assert.fail("small")) } });
  other.f.message(1);
  other.f.message(2);
  assert.deepEqual(await take(other.sub, 1), [2]);
  assert.deepEqual(invalid, [1]);
});

test("codecs and schemas", async () => {
  const schema = { "~standard": { version: 1, vendor: "t", validate: async (value) => (typeof value === "string" ? { value: value.length } : { issues: [{ message: "no text" }] }) } };
  const { f, sub } = await subscribed({ onInvalid() {} }, { schema });
  f.message(1, 5);
  f.message(2, "four");
  assert.deepEqual(await take(sub, 1), [4]);

  const texts = await subscribed({}, { codec: text });
  texts.f.frame("message", { position: 1, time, payload: "as it is" });
  assert.deepEqual(await take(texts.sub, 1), ["as it is"]);

  const binary = await subscribed({}, { codec: bytes });
  binary.f.frame("message", { position: 1, time, payload_base64: "/wAB" });
  binary.f.frame("message", { position: 2, time, payload: "é" });
  assert.deepEqual(await take(binary.sub, 2), [Uint8Array.of(0xff, 0, 1), Uint8Array.of(0xc3, 0xa9)]);
});

test("pages have what has arrived, and commit their last position", async () => {
  const { f, sub } = await subscribed({ group: "g" });
  for (let i = 1; i <= 5; i++) f.message(i);
  const pages = sub.pages(3);
  const { value: first } = await pages.next();
  assert.deepEqual(first.map((m) => m.value), [1, 2, 3]);
  const commit = watch(first.commit());
  await settle();
  assert.deepEqual({ ...f.socket.of("commit")[0], id: 0 }, { id: 0, type: "commit", stream: "s", group: "g", position: 3 });
  f.socket.ok(f.socket.of("commit")[0], { position: 3 });
  await settle();
  assert.equal(commit.done, true);
  assert.equal((await pages.next()).value.length, 2);
  await pages.return();
  assert.equal(f.socket.of("unsubscribe").length, 1);
});

test("a group that shares: messages of lost partitions are discarded, and their commits fail", async () => {
  const told = [];
  const { f, sub } = await subscribed({ group: "g", share: true, credits: 4, onAssigned: (p) => told.push(["+", ...p]), onRevoked: (p) => told.push(["-", ...p]) });
  f.frame("assigned", { partitions: [0, 1], positions: [0, 0] });
  f.message(1, "a", { partition: 0 });
  f.message(1, "b", { partition: 1 });
  f.message(2, "c", { partition: 1 });
  f.frame("revoked", { partitions: [1] });
  assert.deepEqual(await take(sub, 1), ["a"]);
  assert.deepEqual(f.socket.of("credit").map((m) => m.n), [2]);
  await assert.rejects(sub.commit(1, 1), Fenced);
  sub.commit().catch(() => {}); // It ends with the connection.
  await settle();
  assert.deepEqual({ ...f.socket.of("commit")[0], id: 0 }, { id: 0, type: "commit", stream: "s", group: "g", position: 1, partition: 0 });
  f.message(2, "d", { partition: 0 });
  const request = await f.again();
  assert.equal(request.share, true);
  assert.equal(request.after, undefined);
  await settle();
  assert.deepEqual(told, [["+", 0, 1], ["-", 1], ["-", 0]]);
  await assert.rejects(sub.commit(1, 0), Fenced);
});

const parked = { partition: 2, code: "message_too_large", oldest: 3, position: 2, size: 5000000 };

async function member(options) {
  const { f, sub } = await subscribed({ group: "g", share: true, ...options });
  f.frame("assigned", { partitions: [2], positions: [0] });
  f.message(1, 1, { partition: 2 });
  f.frame("parked", parked);
  return { f, sub };
}

test("a partition that is parked ends the iteration, and another one goes on", async () => {
  const { f, sub } = await member();
  assert.deepEqual(await take(sub, 1), [1]);
  await assert.rejects(sub.next(), (error) => error instanceof MessageTooLarge && error.partition === 2 && error.position === 2 && error.size === 5000000 && /position 2 is too large/.test(error.message));
  sub.commit(2, 2);
  f.message(3, 3, { partition: 2 });
  assert.deepEqual(await take(sub, 1), [3]);

  const old = await subscribed({ group: "g", share: true });
  old.f.frame("parked", { partition: 2, code: "too_old", oldest: 9 });
  await assert.rejects(old.sub.next(), (error) => error instanceof TooOld && /before position 9 were dropped/.test(error.message));
});

test("a gap of a partition is crossed after what the program has taken", async () => {
  const gaps = [];
  const { f, sub } = await member({ onGap: (gap) => gaps.push(gap) });
  const pages = sub.pages(10);
  assert.equal((await pages.next()).value.length, 1);
  await settle();
  assert.equal(f.socket.of("commit").length, 0);
  const failed = assert.rejects(pages.next(), Forbidden);
  await settle();
  f.socket.error(f.socket.of("commit")[0], "forbidden");
  await failed; // It must not stand still without an error.
  const next = watch(sub.pages(10).next());
  await settle();
  assert.deepEqual({ ...f.socket.of("commit")[1], id: 0 }, { id: 0, type: "commit", stream: "s", group: "g", position: 2, partition: 2 });
  f.socket.ok(f.socket.of("commit")[1], { position: 2 });
  f.message(3, 3, { partition: 2 });
  await settle();
  assert.equal(next.value.value[0].position, 3);
  assert.deepEqual(gaps[1], parked);
});

test("a message that is too large ends it, or is left out", async () => {
  const { f, sub } = await subscribed({ after: 0 });
  f.frame("error", { ...parked, message: "large" });
  await assert.rejects(sub.next(), MessageTooLarge);
  const other = await subscribed({ after: 0, onGap: "skip" });
  other.f.frame("error", { ...parked, message: "large" });
  watch(other.sub.next());
  await settle();
  assert.equal(other.f.socket.of("subscribe")[1].after, 2);
});

test("no code of the program runs on the loop that reads", async () => {
  const order = [];
  const { f, sub } = await subscribed({ credits: 10, onGap() {} }, { codec: { encode: String, decode: () => order.push("decoded") } });
  const next = sub.next();
  f.message(1);
  order.push("read");
  await next;
  assert.deepEqual(order, ["read", "decoded"]);
});

test("a subscription that has no answer in time is ended on the server", async () => {
  const f = fake();
  const sub = f.tw.stream("s").subscribe({ group: "g", share: true, timeout: "1s" });
  const ready = watch(sub.ready);
  await f.up();
  mock.timers.tick(1_000);
  await settle();
  assert.equal(ready.error.code, "timeout");
  assert.equal(f.socket.of("unsubscribe")[0].subscription, f.socket.of("subscribe")[0].subscription);
});

test("a commit of all partitions leaves out those that are owned no more", async () => {
  const f = fake();
  const sub = f.tw.stream("s").subscribe({ group: "g", share: true });
  await f.up();
  const { subscription } = f.socket.of("subscribe")[0];
  f.socket.ok(f.socket.of("subscribe")[0]);
  f.socket.say({ type: "assigned", subscription, partitions: [0, 1] });
  for (const partition of [0, 1]) f.socket.say({ type: "message", subscription, position: 5 + partition, partition, payload: "1", time: "" });
  await sub.next();
  await sub.next();
  f.socket.say({ type: "revoked", subscription, partitions: [1] });
  const committed = watch(sub.commit());
  await settle();
  assert.deepEqual(f.socket.of("commit").map((m) => [m.partition, m.position]), [[0, 5]]);
  f.socket.ok(f.socket.of("commit")[0], { position: 5 });
  await settle();
  assert.equal(committed.value, 5);
});
