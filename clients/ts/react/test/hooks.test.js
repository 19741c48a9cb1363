import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { createElement, StrictMode } from "react";
import { act, create } from "react-test-renderer";
import { end, fake, settle } from "../../test/fake.js";
import { TidewireContext, useConnection, useRoom, useStream, useTidewire } from "../dist/index.js";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const ends = [];
afterEach(async () => {
  for (const last of ends.splice(0).reverse()) await last();
});

/** Renders a component that shows what a hook returns, with a client whose server is the test. */
async function render(hook, { strict = false, props = {} } = {}) {
  const f = fake();
  const shown = [];
  const Component = (given) => {
    shown.push(hook(given));
    return null;
  };
  const tree = (given) => {
    const inside = createElement(TidewireContext.Provider, { value: f.tw }, createElement(Component, given));
    return strict ? createElement(StrictMode, null, inside) : inside;
  };
  let root;
  await act(() => void (root = create(tree(props))));
  const unmount = () => act(async () => root.unmount());
  ends.push(() => end(f), unmount);
  return {
    f,
    unmount,
    /** What the hook returned last. */
    now: () => shown.at(-1),
    rerender: (given) => act(() => root.update(tree(given))),
    /** Does something, and lets the component see it. */
    does: (fn) => act(async () => {
      await fn();
      await settle();
    }),
  };
}

const message = (position) => ({ type: "message", position, time: "2026-11-26T08:05:07Z", payload: `${position}` });

test("useStream has the last messages, and ends with its component", async () => {
  const { f, now, does, unmount } = await render(() => useStream("s", { after: 0, keep: 2 }));
  assert.deepEqual(now().messages, []);
  await does(() => f.up());
  const [request] = f.socket.of("subscribe");
  assert.equal(request.after, 0);
  await does(() => {
    f.socket.ok(request, { position: 0 });
    for (let position = 1; position <= 3; position++) f.socket.say({ ...message(position), subscription: request.subscription });
  });
  assert.deepEqual(now().messages.map((m) => m.value), [2, 3]);
  await unmount();
  assert.deepEqual(f.socket.of("unsubscribe"), [{ type: "unsubscribe", subscription: request.subscription }]);
});

test("another name subscribes anew, and an error is shown", async () => {
  const { f, now, does, rerender } = await render(({ name }) => useStream(name, { after: 0 }), { props: { name: "a" } });
  await does(() => f.up());
  const [first] = f.socket.of("subscribe");
  await does(() => {
    f.socket.ok(first, { position: 0 });
    f.socket.say({ ...message(1), subscription: first.subscription });
  });
  assert.equal(now().messages.length, 1);
  await rerender({ name: "b" });
  await does(() => {});
  assert.deepEqual(now().messages, []);
  const second = f.socket.of("subscribe").at(-1);
  assert.equal(second.stream, "b");
  await does(() => f.socket.error(second, "not_found"));
  assert.equal(now().error.code, "not_found");
});

test("useRoom has chats and members, and leaves with its component", async () => {
  const { f, now, does, unmount } = await render(() => useRoom("r", { presence: true, user: "ann" }));
  await does(() => f.up());
  const [request] = f.socket.of("join");
  assert.deepEqual({ ...request, id: 0 }, { id: 0, type: "join", room: "r", presence: true, user: "ann" });
  await does(() => f.socket.ok(request));
  assert.equal(now().room.name, "r");
  await does(() => {
    f.socket.say({ type: "presence", room: "r", members: ["bob", "ann"], count: 2 });
    f.socket.say({ type: "chat", room: "r", user: "bob", text: "hello" });
  });
  assert.deepEqual(now().members, ["ann", "bob"]);
  assert.deepEqual(now().chats.map((chat) => chat.text), ["hello"]);
  await unmount();
  const [leave] = f.socket.of("leave");
  assert.equal(leave.room, "r");
  f.socket.ok(leave);
});

test("a component that React mounts twice is in its room once", async () => {
  const { f, now, does, unmount } = await render(() => useRoom("r"), { strict: true });
  await does(() => f.up());
  const answered = new Set();
  // Each answer may let the next request go out.
  for (let turn = 0; turn < 3; turn++) {
    await does(() => {
      for (const request of [...f.socket.of("join"), ...f.socket.of("leave")]) {
        if (!answered.has(request.id)) f.socket.ok(request);
        answered.add(request.id);
      }
    });
  }
  assert.equal(now().error, undefined);
  assert.equal(now().room.name, "r");
  await unmount();
  for (const leave of f.socket.of("leave")) if (!answered.has(leave.id)) f.socket.ok(leave);
});

test("useConnection follows the connection", async () => {
  const { f, now, does } = await render(() => useConnection());
  assert.equal(now().name, "idle");
  await does(() => {
    void f.tw.stream("s").subscribe().ready;
    return f.up();
  });
  assert.equal(now().name, "connected");
  await does(() => f.socket.ok(f.socket.of("subscribe")[0], { position: 0 }));
});

test("a hook without a client says what to do", () => {
  const Lost = () => {
    useTidewire();
    return null;
  };
  return assert.rejects(async () => act(() => void create(createElement(Lost))), /TidewireContext\.Provider/);
});
