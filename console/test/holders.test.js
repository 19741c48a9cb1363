import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.js";

const { queueOf } = await load("streams/holders.ts");

test("a stream is a queue's by its name, or as one of the parts that the queue has", () => {
  const queues = new Set(["mail", "urgent", "made here/1"]);
  const parts = new Map([["urgent", 3], ["mail", 0]]);
  for (const [stream, want] of [
    ["mail", "mail"], ["made here/1", "made here/1"], ["urgent/0", "urgent"], ["urgent/2", "urgent"],
    ["urgent", undefined], ["urgent/3", undefined], ["urgent/01", undefined], ["urgent/x", undefined], ["mail/0", undefined], ["orders", undefined], ["/0", undefined],
  ]) assert.equal(queueOf(stream, queues, parts), want, stream);
});
