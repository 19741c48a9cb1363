import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { Conflict, tagged, typed } from "#client";
import { fake, settle, watch } from "./fake.js";

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  mock.method(Math, "random", () => 0);
});
afterEach(() => {
  mock.reset();
  mock.timers.reset();
});

test("queries", () => {
  assert.deepEqual(tagged("a", "b").types("X").items, [{ tags: ["a", "b"], types: ["X"] }]);
  assert.deepEqual(typed("X").or(tagged("a")).items, [{ types: ["X"] }, { tags: ["a"] }]);
});

test("append has its events and condition", async () => {
  const f = fake();
  const call = watch(f.tw.events("shop").append({ type: "E", data: { n: 1 } }, { condition: { query: tagged("a"), after: 3 } }));
  await f.up();
  const [request] = f.socket.sent;
  assert.deepEqual({ ...request, id: 0, client: 0 }, {
    type: "append", id: 0, client: 0, sequence: 0, store: "shop",
    events: [{ type: "E", data: { n: 1 } }], condition: { query: { items: [{ tags: ["a"] }] }, after: 3 },
  });
  f.socket.ok(request, { positions: [4] });
  await settle();
  assert.deepEqual(call.value, { positions: [4], duplicate: false });
});

test("query reads all pages, forwards and backwards", async () => {
  for (const backwards of [false, true]) {
    const f = fake();
    const seen = [];
    const reading = (async () => {
      for await (const event of f.tw.events().query(tagged("a"), { backwards, page: 2 })) seen.push(event.position);
    })();
    await f.up();
    f.socket.ok(f.socket.sent[0], { events: [{ position: 1 }, { position: 2 }], next: 2 });
    await settle();
    assert.equal(f.socket.sent[1][backwards ? "before" : "after"], 2);
    f.socket.ok(f.socket.sent[1], { events: [], next: 2 });
    await reading;
    assert.deepEqual(seen, [1, 2]);
  }
});

test("decide begins again on a conflict", async () => {
  const f = fake();
  const seen = [];
  const call = watch(
    f.tw.events().decide(
      {
        taken: { query: tagged("course:1").types("Enrolled"), init: 0, apply: (n) => n + 1 },
        closed: { query: typed("Closed"), init: false, apply: () => true },
      },
      (states) => {
        seen.push(states);
        return { type: "Enrolled", tags: ["course:1"] };
      },
    ),
  );
  await f.up();
  const event = { position: 4, type: "Enrolled", tags: ["course:1", "x"] };
  for (let tries = 0; tries < 2; tries++) {
    let [query] = f.socket.of("query").slice(-1);
    assert.deepEqual(query.query, { items: [{ tags: ["course:1"], types: ["Enrolled"] }, { types: ["Closed"] }] });
    f.socket.ok(query, { events: tries ? [event, { position: 6, type: "Closed", tags: [] }] : [event], next: 9 });
    await settle();
    [query] = f.socket.of("query").slice(-1);
    f.socket.ok(query, { events: [], next: 9 });
    await settle();
    const append = f.socket.of("append")[tries];
    assert.equal(append.condition.after, tries ? 6 : 4);
    if (tries) f.socket.ok(append, { positions: [7] });
    else f.socket.error(append, "conflict", { position: 6, event_type: "Closed" });
    await settle();
    mock.timers.tick(0);
    await settle();
  }
  assert.deepEqual(call.value, { positions: [7], duplicate: false, tries: 2 });
  assert.deepEqual(seen, [{ taken: 1, closed: false }, { taken: 1, closed: true }]);
});

test("decide ends with the last conflict, or the error of the program", async () => {
  const f = fake();
  const projections = { n: { query: tagged("a"), init: 0, apply: (n) => n + 1 } };
  const call = watch(f.tw.events().decide(projections, () => [{ type: "E" }], { attempts: 1 }));
  await f.up();
  f.socket.ok(f.socket.of("query")[0], { events: [], next: 0 });
  await settle();
  f.socket.error(f.socket.of("append")[0], "conflict", { position: 2, event_type: "E" });
  await settle();
  assert.ok(call.error instanceof Conflict);
  assert.equal(call.error.position, 2);
  assert.equal(call.error.eventType, "E");
  const full = watch(f.tw.events().decide(projections, () => { throw new Error("full"); }));
  await settle();
  f.socket.ok(f.socket.of("query")[1], { events: [], next: 0 });
  await settle();
  assert.equal(full.error.message, "full");
});

test("project counts", async () => {
  const f = fake();
  const call = watch(f.tw.events().project([tagged("a")]));
  await f.up();
  f.socket.ok(f.socket.sent[0], { counts: [3], condition: { query: { items: [] }, after: 9 } });
  await settle();
  assert.deepEqual(call.value.counts, [3]);
});

test("a subscription of events goes on where it was", async () => {
  const f = fake();
  const sub = f.tw.events("shop").subscribe(tagged("a"), { after: 1 });
  await f.up();
  const [request] = f.socket.of("subscribe");
  assert.deepEqual({ ...request, id: 0, subscription: 0 }, { id: 0, type: "subscribe", subscription: 0, credits: 256, store: "shop", query: { items: [{ tags: ["a"] }] }, after: 1 });
  f.socket.ok(request, { position: 1 });
  f.socket.say({ type: "event", subscription: request.subscription, event: { position: 2, time: "", type: "E", tags: ["a"] } });
  assert.equal((await sub.next()).value.type, "E");
  f.socket.cut();
  mock.timers.tick(0);
  await f.up();
  assert.equal(f.socket.of("subscribe")[0].after, 2);
});
