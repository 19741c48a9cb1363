// Replays of a stream into another stream, and into a queue.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
import { becomes, launch, open } from "./browser.js";

let server, browser, base;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  base = server.base;
  await v1(base, "POST", "streams/orders", { keyed: true });
  for (let i = 0; i < 3; i++) {
    const messages = Array.from({ length: 1000 }, (_, j) => ({ key: `k${j % 4}`, headers: { n: j }, payload: `{"n":${i * 1000 + j + 1}}` }));
    await v1(base, "POST", "streams/orders/messages", { messages });
  }
  await v1(base, "POST", "streams/copy", {});
  await v1(base, "POST", "queues/mail", {});
});
after(async () => {
  await browser?.close();
  await server?.end();
});

test("a replay that was stopped goes on, and stores nothing twice", async (t) => {
  const page = await open(t, browser, base);
  await v1(base, "POST", "queues/mail/pause");
  const first = await v1(base, "POST", "streams/orders/replay", { to_queue: "mail", key: "k1" });
  await v1(base, "DELETE", `streams/orders/jobs/${first.job}`);
  await becomes(async () => (await v1(base, "GET", `streams/orders/jobs/${first.job}`)).state === "running", false);
  const stopped = await v1(base, "GET", `streams/orders/jobs/${first.job}`);
  // The same again from the beginning, as after a loss of the server: what is there is found.
  await v1(base, "POST", "streams/orders/replay", { to_queue: "mail", key: "k1", replay: first.replay, until: stopped.after });
  await page.goto(`${base}/console/streams/orders?replay=1&into=queue&target=mail&key=k1`);
  const line = page.locator(".jobs li").filter({ hasText: "queue mail" });
  if (stopped.state === "stopped") {
    await line.filter({ hasText: "was stopped" }).getByRole("button", { name: "Go on …" }).click();
    await page.getByRole("dialog").getByRole("textbox").fill("mail");
    await page.getByRole("dialog").getByRole("button", { name: "Replay" }).click();
  }
  await line.filter({ hasText: "is done" }).first().waitFor();
  const stored = async () => (await v1(base, "GET", "queues/mail/messages?limit=1000")).messages.map(({ payload }) => JSON.parse(payload).n);
  await becomes(async () => (await stored()).length, 750); // the numbers of the queue have gaps: those of messages that were there already
  assert.equal(new Set(await stored()).size, 750);
  await page.getByRole("button", { name: "Count first" }).click();
  await page.getByRole("row", { name: /^Target/ }).getByText(/: [\d,]+ ready, 0 dead, paused/).waitFor();
  await page.getByRole("button", { name: "Browse" }).click();
  await page.waitForURL(`${base}/console/streams/orders`);
});
