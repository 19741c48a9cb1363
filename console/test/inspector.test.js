// The log of the inspector, with a socket that a test drives.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { load } from "./load.js";

const { matching, mostFrames, mostText, templatesOf, textOf, Wire } = await load("inspector/wire.ts");

let socket;
globalThis.location = { origin: "https://tw.example" };
globalThis.window = globalThis;
globalThis.WebSocket = class {
  sent = [];
  constructor(url, protocols) {
    Object.assign(this, { url, protocols });
    socket = this;
  }
  send(text) {
    this.sent.push(text);
  }
  close(code) {
    this.code = code;
  }
};

let wire;
const shown = () => {
  wire.pause(false);
  return wire.frames.value;
};
beforeEach(() => {
  wire = new Wire();
});

test("the token goes in the first frame, not in the address, and is not in the log", () => {
  wire.connect("secret");
  assert.deepEqual([socket.url, socket.protocols], ["wss://tw.example/ws", ["tidewire.v1"]]);
  socket.onopen();
  assert.deepEqual(socket.sent, ['{"type":"auth","id":"auth","token":"secret"}']);
  wire.send('{"token":"secret","type":"auth"}');
  assert.ok(!JSON.stringify(shown()).includes("secret"));
  assert.equal(shown()[1].size, 44);
});

test("without a token nothing is sent", () => {
  wire.connect("");
  socket.onopen();
  assert.deepEqual(socket.sent, []);
  assert.equal(wire.state.value.name, "open");
});

test("an answer has the time since its request, by the id, and only the first one", () => {
  wire.connect("");
  socket.onopen();
  for (const id of [1, "1", 2]) wire.send(JSON.stringify({ type: "ping", id }));
  for (const text of ['{"type":"ok","id":"1"}', '{"type":"error","id":1}', '{"type":"ok","id":1}', '{"type":"message","id":2}', "[1]", "null", "no JSON", "ä"]) socket.onmessage({ data: text });
  const frames = shown().toReversed().slice(3);
  assert.deepEqual(frames.map(({ took }) => took !== undefined), [true, true, false, false, false, false, false, false]);
  assert.ok(frames[0].took >= 0);
  assert.deepEqual(frames.map(({ type, failed }) => type + failed), ["okfalse", "errortrue", "okfalse", "messagefalse", "batchfalse", "false", "false", "false"]);
  assert.equal(frames.at(-1).size, 2);
});

test("the log is bounded in frames and in text", () => {
  wire.connect("");
  for (let i = 0; i < mostFrames + 10; i++) socket.onmessage({ data: `${i}` });
  assert.equal(shown().length, mostFrames);
  assert.equal(shown()[0].text, `${mostFrames + 9}`);
  assert.equal(shown().at(-1).text, "10");
  const large = "x".repeat(mostText / 4);
  for (let i = 0; i < 9; i++) socket.onmessage({ data: large });
  assert.equal(shown().length, 4);
  socket.onmessage({ data: "x".repeat(mostText * 2) });
  assert.equal(shown().length, 1, "a larger one is kept alone");
  wire.clear();
  assert.equal(shown().length, 0);
  socket.onmessage({ data: "x" });
  assert.equal(shown().length, 1);
});

test("a pause holds the view, and keeps what comes", () => {
  wire.connect("");
  socket.onmessage({ data: "1" });
  shown();
  wire.pause(true);
  socket.onmessage({ data: "2" });
  wire.pause(true);
  assert.equal(wire.frames.value.length, 1);
  assert.equal(wire.count.value, 2);
  assert.equal(shown().length, 2);
});

test("the end of a connection is told, and not that of one before", () => {
  wire.connect("");
  const first = socket;
  wire.connect("");
  assert.equal(first.code, 1000);
  first.onclose({ code: 1000, reason: "" });
  assert.equal(wire.state.value.name, "connecting");
  socket.onclose({ code: 4401, reason: "no token" });
  assert.deepEqual(wire.state.value, { name: "closed", why: "The connection has ended with code 4401: no token." });
  wire.connect("");
  wire.close();
  assert.equal(wire.state.value.why, "You have ended the connection.");
});

test("frames are found by their text and direction", () => {
  const frames = [{ out: true, text: "Ping" }, { out: false, text: "pong" }];
  assert.equal(matching(frames, "", "").length, 2);
  assert.deepEqual(matching(frames, "P", "in"), [frames[1]]);
  assert.deepEqual(matching(frames, "ping", ""), [frames[0]]);
  assert.deepEqual(matching(frames, "", "out"), [frames[0]]);
});

test("templates are the examples of the description, with an id of their own", () => {
  const messages = { ping: { name: "ping", summary: "s", examples: [{ name: "a", payload: { type: "ping" } }, { name: "b", payload: { type: "ping", id: 1 } }] }, "server.pong": { name: "server.pong", summary: "" } };
  const templates = templatesOf(JSON.stringify({ components: { messages } }));
  assert.deepEqual(templates.map(({ name, type }) => `${type}: ${name}`), ["ping: a", "ping: b"]);
  assert.deepEqual(JSON.parse(textOf(templates[0], 7)), { type: "ping" });
  assert.deepEqual(JSON.parse(textOf(templates[1], 7)), { type: "ping", id: 7 });
});
