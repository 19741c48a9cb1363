// The minified file in a page of Chromium, with the real server at TIDEWIRE_URL.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect as tcp } from "node:net";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { chromium } from "playwright-core";
import { root } from "./compile.js";

const url = process.env.TIDEWIRE_URL;
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const skip = !url ? "TIDEWIRE_URL is not set" : !existsSync(executablePath) && `there is no browser at ${executablePath}`;

/** Serves a page and the client, and passes WebSockets to the server, so that they are of the page's origin. */
async function site(t) {
  const script = await readFile(`${root}dist/tidewire.min.js`);
  const links = new Set();
  const server = createServer((request, response) => {
    const page = request.url === "/";
    response.setHeader("Content-Type", page ? "text/html" : "text/javascript");
    response.end(page ? "<!doctype html><title>test</title>" : script);
  });
  server.on("upgrade", (request, socket, head) => {
    const { hostname, port } = new URL(url);
    const upstream = tcp(Number(port || 80), hostname);
    const headers = Object.entries(request.headers).map(([name, value]) => `${name}: ${value}`);
    upstream.write(`GET ${request.url} HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`);
    upstream.write(head);
    socket.pipe(upstream).pipe(socket);
    for (const end of [socket, upstream]) end.on("error", () => {});
    socket.on("close", () => upstream.destroy());
    links.add(socket);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    for (const socket of links) socket.destroy();
    server.close();
  });
  return { address: `http://localhost:${server.address().port}/`, cut: () => links.forEach((socket) => socket.destroy()) };
}

test("a page publishes and subscribes, also after the connection was cut", { skip: skip || false }, async (t) => {
  const stream = `ts-${randomUUID()}`;
  assert.equal((await fetch(`${url}/v1/streams/${stream}`, { method: "POST" })).status, 200);
  const { address, cut } = await site(t);
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  t.after(() => browser.close());
  const page = await browser.newPage();
  await page.goto(address);
  await page.evaluate(async (name) => {
    const { connect } = await import("/client.js");
    const tw = (window.tw = connect("/ws"));
    window.states = [];
    window.seen = [];
    tw.on("state", (state) => window.states.push(state.name));
    const sub = tw.stream(name).subscribe({ after: 0 });
    void (async () => {
      for await (const m of sub) window.seen.push(m.value);
    })();
    await Promise.all([1, 2].map((n) => tw.stream(name).publish(n)));
  }, stream);
  await page.waitForFunction(() => window.seen.length === 2);
  cut();
  await page.waitForFunction(() => window.states.includes("waiting"));
  await page.evaluate((name) => window.tw.stream(name).publish(3), stream);
  await page.waitForFunction(() => window.seen.length === 3);
  assert.deepEqual(await page.evaluate(() => window.seen), [1, 2, 3]);
  await page.evaluate(() => window.tw.close());
  assert.equal(await page.evaluate(() => window.states.at(-1)), "closed");
});
