// Attempts on real sockets that cannot succeed: the error of the call says why.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import WebSocket from "ws";
import { connect, Timeout } from "#client";

/** A server that answers each handshake with a status. It returns its host and port. */
async function refusing(status) {
  const server = createServer();
  server.on("upgrade", (_, socket) => socket.end(`HTTP/1.1 ${status} No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, where: `127.0.0.1:${server.address().port}` };
}

/** The error of a call that ends after an attempt has failed. */
async function errorOf(url) {
  const tw = connect(url, { WebSocket, token: "secret" });
  const controller = new AbortController();
  const failed = new Promise((resolve) => tw.on("state", (state) => state.name === "waiting" && resolve()));
  tw.stream("s").publish(1, { signal: controller.signal }).catch(() => {});
  await failed;
  const error = await tw.stream("s").publish(2, { timeout: 1 }).catch((reason) => reason);
  controller.abort();
  await tw.close();
  return error;
}

for (const status of [401, 404]) {
  test(`a server that answers ${status} is named, with its answer and without secrets`, async (t) => {
    const { server, where } = await refusing(status);
    t.after(() => server.close());
    const error = await errorOf(`http://${where}/wrong?key=secret`);
    assert.ok(error instanceof Timeout);
    assert.equal(error.message, `not sent in time: no connection to ws://${where}/wrong: Unexpected server response: ${status}`);
    assert.ok(error.message.endsWith(error.cause.message));
  });
}

test("a port where nobody listens is named", async () => {
  const { server, where } = await refusing(500);
  server.close();
  await once(server, "close");
  const error = await errorOf(`ws://${where}/ws`);
  assert.ok(error instanceof Timeout);
  assert.match(error.message, new RegExp(`no connection to ws://${where}/ws: .*ECONNREFUSED`));
});
