import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { parsed } = await load("rights.ts");

test("a right has a verb, a kind and a name, which may have any characters", () => {
  assert.deepEqual(parsed("read stream:orders"), { verb: "read", kind: "stream", name: "orders" });
  assert.deepEqual(parsed("admin queue:a: b\nc"), { verb: "admin", kind: "queue", name: "a: b\nc" });
  assert.deepEqual(parsed("read stream:*"), { verb: "read", kind: "stream", name: "*" });
  assert.deepEqual(parsed("metrics server:*"), { verb: "metrics", kind: "server" });
});
