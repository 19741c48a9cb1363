// A WebSocket whose other end is the test: it sees each frame, and says what comes back.
import assert from "node:assert/strict";
import { connect } from "#client";

export const hello = {
  type: "hello",
  protocol: "tidewire.v1",
  now_ms: 0,
  authenticated: true,
  features: ["rooms", "streams", "queues", "events"],
  limits: { message_bytes: 1048576 },
};

/** Lets everything run that has been begun, also what waits for the next turn of the event loop. */
export async function settle() {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
}

export function fake(options = {}) {
  const sockets = [];
  class Fake {
    constructor(url, protocols, init) {
      Object.assign(this, { url, protocols, init, sent: [], closed: undefined });
      sockets.push(this);
    }
    send(data) {
      this.sent.push(JSON.parse(data));
    }
    close(code) {
      this.closed ??= code ?? 1000;
    }
    /** A frame of the server. */
    say(message) {
      this.onmessage?.({ data: JSON.stringify(message) });
    }
    /** The answer to a request. */
    ok(request, fields = {}) {
      this.say({ type: "ok", id: request.id, ...fields });
    }
    error(request, code, fields = {}) {
      this.say({ type: "error", id: request.id, code, message: code, retryable: false, ...fields });
    }
    /** The connection ends. */
    cut(code = 1006, reason = "") {
      this.onclose?.({ code, reason });
    }
    /** The requests of a type. */
    of(type) {
      return this.sent.filter((m) => m.type === type);
    }
  }
  const tw = connect("ws://server.test/ws", { WebSocket: Fake, ...options });
  const states = [];
  tw.on("state", (state) => states.push(state));
  const link = {
    tw,
    states,
    sockets,
    get socket() {
      return sockets.at(-1);
    },
    /** Waits for an attempt to connect, and lets it succeed. */
    async up(message = hello) {
      const before = sockets.length;
      await settle();
      if (sockets.length === before && sockets.at(-1)?.greeted) assert.fail("there is no new attempt");
      sockets.at(-1).greeted = true;
      sockets.at(-1).say(message);
      await settle();
      return sockets.at(-1);
    },
  };
  return link;
}

/** The outcome of a promise, or undefined while it has none. */
export function watch(promise) {
  const seen = { done: false };
  promise.then(
    (value) => Object.assign(seen, { done: true, value }),
    (error) => Object.assign(seen, { done: true, error }),
  );
  return seen;
}

/** Ends the waits of a test for good. */
export async function end({ tw, sockets }) {
  const closing = tw.close();
  await settle();
  for (const socket of sockets) for (const m of socket.sent) if (m.type === "cancel") socket.ok(m);
  await closing;
}
