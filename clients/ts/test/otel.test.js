// With an API of OpenTelemetry as it registers itself.
import assert from "node:assert/strict";
import "../dist/otel.js";
import { after, mock, test } from "node:test";
import { fake, settle } from "./fake.js";

const key = Symbol.for("OpenTelemetry Context Key SPAN");
const registry = Symbol.for("opentelemetry.js.api.1");
const spans = [];

class Context {
  constructor(values = new Map()) {
    this.values = values;
  }
  getValue(name) {
    return this.values.get(name);
  }
  setValue(name, value) {
    return new Context(new Map(this.values).set(name, value));
  }
}

let active = new Context();
globalThis[registry] = {
  context: {
    active: () => active,
    with(context, fn) {
      const before = active;
      active = context;
      try {
        return fn();
      } finally {
        active = before;
      }
    },
  },
  propagation: {
    inject: (context, carrier, setter) => setter.set(carrier, "traceparent", "00-1"),
    extract: (context, carrier, getter) => context.setValue(key, { spanContext: () => getter.get(carrier, "traceparent") }),
  },
  trace: {
    getTracer: () => ({
      startSpan(name, options) {
        const span = { name, ...options, ended: false, end: () => (span.ended = true), recordException: (error) => (span.error = error), setStatus() {} };
        spans.push(span);
        return span;
      },
    }),
  },
};
mock.timers.enable({ apis: ["setTimeout", "Date"] });
after(() => delete globalThis[registry]);

test("publish and enqueue carry the trace of the caller, and keep the headers of the program", async () => {
  const f = fake();
  void f.tw.stream("s").publish(1, { headers: { own: "1" } });
  void f.tw.queue("q").enqueue(1);
  await f.up();
  assert.deepEqual(f.socket.sent[0].headers, { traceparent: "00-1", own: "1" });
  assert.deepEqual(f.socket.sent[1].headers, { traceparent: "00-1" });
});

test("handlers and iterations have a span for each message, linked to its sender", async () => {
  const f = fake();
  const sub = f.tw.stream("s").subscribe();
  let inside;
  f.tw.queue("q").work((job) => {
    inside = active.getValue(key).name;
    if (job.position === 2) throw new Error("no");
  }, { concurrency: 2 });
  await f.up();
  const message = { position: 1, time: "", payload: "1", headers: { traceparent: "00-2" } };
  f.socket.ok(f.socket.of("subscribe")[0], { position: 0 });
  f.socket.ok(f.socket.of("consume")[0]);
  f.socket.say({ ...message, type: "message", subscription: f.socket.of("subscribe")[0].subscription });
  f.socket.say({ ...message, type: "delivery", queue: "q", delivery: "d", attempt: 1 });
  f.socket.say({ ...message, type: "delivery", queue: "q", delivery: "e", attempt: 1, position: 2 });
  await sub.next();
  await settle();
  const receive = spans.find((span) => span.name === "receive s");
  assert.equal(receive.ended, false);
  void sub.next();
  assert.equal(receive.ended, true);
  assert.deepEqual(receive.links, [{ context: "00-2" }]);
  const processed = spans.filter((span) => span.name === "process q");
  assert.equal(inside, "process q");
  assert.deepEqual(processed.map((span) => [span.ended, span.error?.message]), [[true, undefined], [true, "no"]]);
});
