// Searching a stream on the server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
import { launch, open } from "./browser.js";

let server, browser, base;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  base = server.base;
  await v1(base, "POST", "streams/orders", { keyed: true });
  for (let i = 0; i < 25; i++) {
    const messages = Array.from({ length: 1000 }, (_, j) => ({ key: `k${j % 4}`, headers: { trace: `T-${i * 1000 + j + 1}` }, payload: `{"n":${i * 1000 + j + 1},"deep":{"odd":${j % 2 === 0}}}` }));
    await v1(base, "POST", "streams/orders/messages", { messages });
  }
});
after(async () => {
  await browser?.close();
  await server?.end();
});

test("a search pauses, is stopped, and goes on", async (t) => {
  const page = await open(t, browser, base, { allowed: ["503"] });
  await page.goto(`${base}/console/streams/orders?search=1&text=trace`);
  await page.getByText("Paused: there may be more.").waitFor();
  let held;
  await page.route("**/search?*", (route) => void (held = route));
  await page.goto(`${base}/console/streams/orders?search=1&text=T-77`);
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("Stopped.").waitFor();
  await page.getByText("Read 0 of 25,000 positions, 0 found.").waitFor();
  await held.abort().catch(() => {});
  await page.unroute("**/search?*");
  await page.route("**/search?*", (route) => route.fulfill({ status: 503, json: { error: { code: "unavailable", message: "not now" } } }));
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByText("The search has stopped").waitFor();
  await page.unroute("**/search?*");
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByText("Read 25,000 of 25,000 positions, 111 found.").waitFor();
  assert.equal(await page.getByText("The search has stopped").count(), 0);
});
