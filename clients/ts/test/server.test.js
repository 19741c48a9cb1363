// Against the real server at TIDEWIRE_URL, such as http://localhost:8080.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import WebSocket from "ws";
import { connect, Conflict, NotFound, tagged } from "#client";

const url = process.env.TIDEWIRE_URL;
const options = url ? {} : { skip: "TIDEWIRE_URL is not set" };
const open = (t, more) => {
  const tw = connect(`${url.replace(/\/$/, "")}/ws`, { WebSocket, ...more });
  t.after(() => tw.close());
  return tw;
};

async function make(kind, query = "") {
  const name = `ts-${randomUUID()}`;
  const { status } = await fetch(`${url}/v1/${kind}/${name}${query}`, { method: "POST" });
  assert.equal(status, 200);
  return name;
}

test("messages come in their order, with history, live, and after a break", options, async (t) => {
  const tw = open(t);
  const s = tw.stream(await make("streams"));
  await Promise.all(Array.from({ length: 2_500 }, (_, i) => s.publish(i)));
  const sub = s.subscribe({ after: 0, credits: 64 });
  let next = 0;
  for await (const m of sub) {
    assert.equal(m.value, next++);
    if (next === 1_000) break;
  }
  const rest = s.subscribe({ after: sub.position });
  void s.publish(2_500);
  for await (const page of rest.pages(100)) {
    for (const m of page) assert.equal(m.value, next++);
    if (next === 2_501) break;
  }
});

test("a group goes on where it has committed", options, async (t) => {
  const tw = open(t);
  const s = tw.stream(await make("streams"));
  await s.publishAll([1, 2, 3]);
  const first = s.subscribe({ group: "g" });
  for await (const m of first) if (m.value === 2) break;
  assert.equal(await s.subscribe({ group: "g" }).commit(first.position), first.position);
  const { value } = await s.subscribe({ group: "g" }).next();
  assert.equal(value.value, 3);
});

test("a shared group gets all partitions", options, async (t) => {
  const tw = open(t);
  const s = tw.stream(await make("streams"));
  await s.publishAll(["a", "b"]);
  const assigned = [];
  const sub = s.subscribe({ group: "g", share: true, onAssigned: (partitions) => assigned.push(...partitions) });
  for await (const page of sub.pages(10)) {
    await page.commit();
    if (page.at(-1).value === "b") break;
  }
  assert.deepEqual(assigned, [0]);
});

test("a queue: done, again, and dead letters", options, async (t) => {
  const tw = open(t);
  const name = await make("queues");
  const q = tw.queue(name);
  const outcomes = new Map();
  let all;
  const complete = new Promise((resolve) => (all = resolve));
  const worker = q.work(
    (job) => {
      if (job.value === "again" && job.attempt === 1) job.retry(1);
      if (job.value === "dead") job.dead("no use");
    },
    {
      concurrency: 4,
      onDone(job, outcome) {
        outcomes.set(`${job.value}${job.attempt}`, outcome);
        if (outcomes.size === 4) all();
      },
    },
  );
  await q.enqueueAll(["done", "again", "dead"]);
  await complete;
  await worker.stop();
  assert.deepEqual(Object.fromEntries(outcomes), { done1: "acked", again1: "nacked", again2: "acked", dead1: "nacked" });
  const unique = { uniqueKey: "u", uniqueFor: "1m" };
  assert.equal((await q.enqueue(1, unique)).duplicate, false);
  assert.equal((await q.enqueue(1, unique)).duplicate, true);
});

test("rooms: chats and presence", options, async (t) => {
  const name = `ts-${randomUUID()}`;
  const [ann, bob] = [open(t), open(t)];
  const a = await ann.room(name).join({ presence: true, user: "ann" });
  const seen = new Promise((resolve) => a.on("presence", ({ members }) => members.has("bob") && resolve()));
  const b = await bob.room(name).join({ user: "bob" });
  await b.chat("hello");
  const { value } = await a.messages.next();
  assert.deepEqual([value.user, value.text], ["bob", "hello"]);
  await seen;
});

test("events: only one of two decisions about the same seat counts", options, async (t) => {
  const tw = open(t);
  const seat = `seat:${randomUUID()}`;
  const book = () =>
    tw.events().decide({ taken: { query: tagged(seat), init: 0, apply: (n) => n + 1 } }, ({ taken }) => {
      if (taken) throw new Error("taken");
      return { type: "Booked", tags: [seat] };
    });
  const results = await Promise.allSettled([book(), book()]);
  assert.deepEqual(results.map((result) => result.status).sort(), ["fulfilled", "rejected"]);
  const booked = { query: tagged(seat) };
  await assert.rejects(tw.events().append({ type: "Booked" }, { condition: booked }), (error) => error instanceof Conflict && error.eventType === "Booked");
  const sub = tw.events().subscribe(tagged(seat));
  assert.deepEqual((await sub.next()).value.tags, [seat]);
  assert.deepEqual((await tw.events().project([tagged(seat)])).counts, [1]);
});

test("errors have their class", options, async (t) => {
  const tw = open(t);
  await assert.rejects(tw.stream("ts-there-is-none").publish(1), (error) => error instanceof NotFound && error.requestId > 0 && !error.retryable);
});
