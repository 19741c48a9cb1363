import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { Forbidden, OutcomeUnknown } from "#client";
import { fake, settle, watch } from "./fake.js";

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  mock.method(Math, "random", () => 0);
});
afterEach(() => {
  mock.reset();
  mock.timers.reset();
});

async function joined(options, answer = {}) {
  const f = fake();
  const joining = f.tw.room("r").join(options);
  await f.up();
  f.socket.ok(f.socket.of("join")[0], answer);
  const room = await joining;
  const seen = [];
  for (const name of ["presence", "gap", "history_lost"]) room.on(name, (event) => seen.push([name, event]));
  f.chat = (text, fields = {}) => f.socket.say({ type: "chat", room: "r", text, ...fields });
  f.again = async () => {
    f.socket.cut();
    mock.timers.tick(0);
    await f.up();
    return f.socket.of("join")[0];
  };
  return { f, room, seen };
}

test("chats of others, with all their fields, and chats to others", async () => {
  const { f, room } = await joined({ user: "ann" });
  assert.deepEqual({ ...f.socket.of("join")[0], id: 0 }, { id: 0, type: "join", room: "r", user: "ann" });
  f.chat("hello", { user: "bob", mood: 7 });
  assert.deepEqual((await room.messages.next()).value, { type: "chat", room: "r", text: "hello", user: "bob", mood: 7 });
  const said = watch(room.chat({ text: "hi", mood: 8 }));
  await settle();
  assert.deepEqual({ ...f.socket.of("chat")[0], id: 0 }, { type: "chat", id: 0, room: "r", user: "ann", text: "hi", mood: 8 });
  f.socket.ok(f.socket.of("chat")[0]);
  await settle();
  assert.deepEqual(said.value, {});
});

test("presence is a set that is always the current one", async () => {
  const { f, room, seen } = await joined({ presence: true });
  f.socket.say({ type: "presence", room: "r", count: 2, members: ["ann", "bob"] });
  f.socket.say({ type: "presence", room: "r", count: 2, joined: ["cid"], left: ["bob"] });
  assert.deepEqual([...room.members], ["ann", "cid"]);
  await f.again();
  f.socket.say({ type: "presence", room: "r", count: 2, members: ["ann", "dan"] });
  await settle();
  assert.deepEqual(seen.filter(([name]) => name === "presence").map(([, { joined, left }]) => [joined, left]), [
    [["ann", "bob"], []],
    [["cid"], ["bob"]],
    [["dan"], ["cid"]],
  ]);
  assert.deepEqual([...room.members], ["ann", "dan"]);
});

test("after a reconnect a room that is not stored has a gap of unknown size", async () => {
  const { f, room, seen } = await joined();
  f.chat("before");
  const request = await f.again();
  assert.equal(request.after, undefined);
  await settle();
  assert.deepEqual(seen, [["gap", { missed: undefined }]]);
  f.socket.ok(request);
  f.socket.say({ type: "gap", room: "r", missed: 3 });
  await settle();
  assert.deepEqual(seen[1], ["gap", { missed: 3 }]);
  assert.equal((await room.messages.next()).value.text, "before");
});

test("a stored room goes on after what the program has, without one's own chats", async () => {
  const { f, room, seen } = await joined({ history: 10 }, { position: 3, history: 0 });
  f.chat("4", { position: 4 });
  f.chat("5", { position: 5 });
  assert.equal((await room.messages.next()).value.text, "4");
  const said = watch(room.chat("own"));
  await settle();
  assert.match(f.socket.of("chat")[0].client, /^[0-9a-f]{32}$/);
  f.socket.ok(f.socket.of("chat")[0], { position: 6 });
  await settle();
  assert.deepEqual(said.value, { position: 6 });
  const request = await f.again();
  assert.equal(request.after, 4);
  assert.equal(request.history, undefined);
  for (const position of [5, 6, 7]) f.chat(`${position}`, { position });
  f.socket.ok(request, { position: 7, history: 3 });
  assert.equal((await room.messages.next()).value.text, "5");
  assert.equal((await room.messages.next()).value.text, "7");
  await settle();
  assert.deepEqual(seen, []);
});

test("a chat in a stored room is sent again, one in another room is not", async () => {
  const stored = await joined({}, { position: 0 });
  void stored.room.chat("again");
  await settle();
  const [before] = stored.f.socket.of("chat");
  const request = await stored.f.again();
  assert.deepEqual(stored.f.socket.sent, [request]);
  stored.f.socket.ok(request, { position: 0 });
  await settle();
  assert.deepEqual(stored.f.socket.of("chat"), [before]);

  const live = await joined();
  const said = watch(live.room.chat("once"));
  await settle();
  await live.f.again();
  assert.ok(said.error instanceof OutcomeUnknown);
  assert.equal(live.f.socket.of("chat").length, 0);
});

test("history that is lost or dropped is told", async () => {
  const { f, seen } = await joined({ after: 9 }, { position: 9 });
  f.socket.say({ type: "history_lost", room: "r", last: 5, up_to: 9 });
  let request = await f.again();
  assert.equal(request.after, 5);
  f.socket.error(request, "history_lost", { last: 2 });
  await settle();
  request = f.socket.of("join")[1];
  assert.equal(request.after, 2);
  f.socket.error(request, "too_old", { oldest: 8 });
  await settle();
  assert.equal(f.socket.of("join")[2].after, 7);
  assert.deepEqual(seen, [
    ["history_lost", { last: 5, upTo: 9 }],
    ["history_lost", { last: 2, upTo: 5 }],
    ["gap", { missed: undefined }],
  ]);
});

test("a program that takes no chats of a stored room gets them later", async () => {
  const { f, room } = await joined({ buffer: 2 }, { position: 0 });
  for (let i = 1; i <= 4; i++) f.chat(`${i}`, { position: i });
  await room.messages.next();
  assert.equal(f.socket.of("leave").length, 0);
  await room.messages.next();
  await settle();
  assert.equal(f.socket.of("leave").length, 1);
  const again = f.socket.of("join")[1];
  assert.equal(again.after, 2);
  f.chat("5", { position: 5 }); // on its way before the room was left: it comes again
  f.socket.ok(f.socket.of("leave")[0]);
  f.chat("3", { position: 3 });
  assert.equal((await room.messages.next()).value.text, "3");
});

test("a member that is put out has the error", async () => {
  const { f, room } = await joined();
  f.socket.say({ type: "error", room: "r", code: "forbidden", message: "no", retryable: false, verb: "join", kind: "room", name: "r" });
  await assert.rejects(room.messages.next(), (error) => error instanceof Forbidden && error.verb === "join" && error.object === "r");
  await assert.rejects(room.chat("x"), { code: "closed" });
});

test("a join that is refused, and a leave", async () => {
  const f = fake();
  const joining = watch(f.tw.room("r").join());
  await f.up();
  f.socket.error(f.socket.of("join")[0], "forbidden", { verb: "join" });
  await settle();
  assert.ok(joining.error instanceof Forbidden);
  const again = f.tw.room("r").join();
  await settle();
  f.socket.ok(f.socket.of("join")[1]);
  const room = await again;
  await assert.rejects(f.tw.room("r").join(), TypeError);
  const leaving = room.leave();
  await settle();
  f.socket.ok(f.socket.of("leave").at(-1));
  await leaving;
  assert.equal((await room.messages.next()).done, true);
});

test("the fields of a chat do not change what the library asks, nor where", async () => {
  const { f, room } = await joined();
  const said = watch(room.chat({ text: "x", id: "mine", type: "publish", client: "c", sequence: 9, room: "other", mood: 7 }));
  await settle();
  const sent = f.socket.sent.at(-1);
  assert.equal(typeof sent.id, "number");
  assert.deepEqual({ ...sent, id: 0 }, { id: 0, type: "chat", room: "r", text: "x", mood: 7 });
  f.socket.ok(sent);
  await settle();
  assert.deepEqual(said.value, {});
});

test("a join that has no answer in time is ended on the server", async () => {
  const f = fake();
  const joining = watch(f.tw.room("r").join({ timeout: "1s" }));
  await f.up();
  mock.timers.tick(1_000);
  await settle();
  assert.equal(joining.error.code, "timeout");
  assert.equal(f.socket.of("leave").length, 1);
});
