import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { lineOf, tagsOf } = await load("connections/data.ts");
const { chosen } = await load("parts/act.tsx");

test("the line that grants a right is a rule of the role, or of the key", () => {
  assert.equal(lineOf({ by: "token", role: "user", grant: "read stream:a" }), "user: read stream:a");
  assert.equal(lineOf({ by: "anonymous", role: "anonymous", grant: "join room:a" }), "anonymous: join room:a");
  assert.equal(lineOf({ by: "key", role: "key", grant: "read stream:a" }), "read stream:a");
});

test("tags are written with spaces between them", () => {
  assert.deepEqual(tagsOf("  tenant:a  x\n"), ["tenant:a", "x"]);
  assert.deepEqual(tagsOf(""), []);
});

test("a choice that an address does not have, or that there is not, is the first", () => {
  const names = { a: "A", b: "B" };
  assert.deepEqual([null, "b", "c", "toString"].map((text) => chosen(names, text)), ["a", "b", "a", "a"]);
});
