import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { inOrder, ratesOf, rights, silence } = await load("rooms/data.ts");
const rooms = (all) => Object.entries(all).map(([room, chats]) => ({ room, chats }));

test("chats a second are the difference of two lists", () => {
  assert.deepEqual([...ratesOf(undefined, { at: 5, rooms: rooms({ a: 1 }) })], []);
  const before = { at: 1000, rooms: rooms({ a: 10, anew: 50, gone: 3 }) };
  assert.deepEqual([...ratesOf(before, { at: 3000, rooms: rooms({ a: 14, anew: 6, fresh: 2 }) })], [["a", 2], ["anew", 3], ["fresh", 1]]);
  assert.deepEqual([...ratesOf(before, { at: 1000, rooms: rooms({ a: 14 }) })], []);
});

test("rooms keep their places, and new ones come after them", () => {
  const order = (before, names) => inOrder(before, names.map((room) => ({ room }))).map(({ room }) => room);
  assert.deepEqual(order([], ["big", "small"]), ["big", "small"]);
  assert.deepEqual(order(["big", "gone", "small"], ["new", "small", "newer", "big"]), ["big", "small", "new", "newer"]);
});

test("what is said", () => {
  assert.deepEqual([silence(undefined, "x"), silence(["a"], "x"), silence(["a", "b"], "x")], ["", "1 server did not answer: x", "2 servers did not answer: x"]);
  assert.equal(rights("a:b").admin, "admin room:a:b");
});
