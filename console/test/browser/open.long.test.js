// Flows of a server in open mode.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
import { big, fill, messageRows, positions } from "./acts.js";
import { becomes, launch, open } from "./browser.js";

let server, browser, base;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  base = server.base;
});
after(async () => {
  await browser?.close();
  await server?.end();
});

test("a new server shows the first steps", async (t) => {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/`);
  const steps = page.getByRole("heading", { name: "First steps" });
  await steps.waitFor();
  assert.ok((await steps.boundingBox()).y < (await page.locator(".plots").boundingBox()).y, "before the plots");
  await page.getByRole("button", { name: /^Copy curl -X POST/ }).click();
  await page.getByText("Copied").waitFor();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(command, `curl -X POST ${base}/v1/streams/orders`);
  await page.getByRole("link", { name: "Streams", exact: true }).click();
  await page.getByText("There is no stream yet").waitFor();
});

test("the overview links to the worst group and queue, and shows the servers of a cluster", async (t) => {
  await fill(base, "slow", 30);
  await v1(base, "POST", "streams/slow/groups/late/commit", { position: 3 });
  await v1(base, "POST", "queues/waiting", {});
  await v1(base, "POST", "queues/waiting/messages", { payload: "x" });
  const page = await open(t, browser, base);
  const names = ["n1", "n2"];
  let answers = 0;
  await page.route("**/v1/overview*", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), node: names[answers++ % 2] } });
  });
  await page.route("**/v1/nodes", (route) => route.fulfill({ json: { node: "n1", nodes: [{ node: "n1", version: "v1", started: "2026-01-02T03:04:05Z", seen_ms: 500, heard: true }, { node: "n2", heard: false }] } }));
  await page.goto(`${base}/console/`);
  const figures = page.getByRole("group", { name: "Figures of server" });
  await figures.getByRole("button", { name: "n1" }).waitFor();
  await becomes(() => figures.locator("[aria-pressed=true]").allTextContents(), ["n1"]);
  await figures.getByRole("button", { name: "n2" }).click();
  await page.waitForURL(/node=n2$/);
  await becomes(() => figures.locator("[aria-pressed=true]").allTextContents(), ["n2"]);
  const nodes = page.getByRole("region", { name: "Servers of the cluster" });
  await becomes(() => nodes.getByRole("row").allTextContents(), ["NameHeardVersionBeganSeen", "n1 (this one)yesv12026-01-02 03:041 s ago", "n2no–––"]);
  await page.getByRole("link", { name: "waiting" }).waitFor({ timeout: 60_000 }); // names are listed each 15 s
  await page.getByRole("link", { name: "late of slow" }).click();
  await page.waitForURL(`${base}/console/streams/slow?group=late`);
  await page.getByText("late continues with").waitFor();
});

test("the overview says when PostgreSQL is away, and when the server is", async (t) => {
  const page = await open(t, browser, base, { allowed: ["ERR_INTERNET_DISCONNECTED"] });
  await page.route("**/v1/overview*", async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    await route.fulfill({ response, json: { ...body, database: { reachable: false, standbys: 0, connections: 0, max_connections: 9 } } });
  });
  await page.goto(`${base}/console/`);
  await page.getByText("PostgreSQL does not answer this server.").waitFor();
  await page.unrouteAll({ behavior: "wait" });
  await page.getByText("PostgreSQL does not answer this server.").waitFor({ state: "detached" });
  await page.context().setOffline(true);
  await page.getByText("No answer from the server. Trying again.").waitFor();
  await page.getByText("The figures are not up to date").waitFor();
  await page.context().setOffline(false);
  await page.getByText("The figures are not up to date").waitFor({ state: "detached" });
});

test("a stream may have the name of a step in a path", async (t) => {
  const page = await open(t, browser, base);
  for (const name of [".", "..", "~.."]) {
    await page.goto(`${base}/console/streams`);
    await page.getByLabel("Name").fill(name);
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("heading", { name, exact: true }).waitFor();
    await page.getByText("Publish a message").click();
    await page.getByLabel("Payload", { exact: true }).fill(`of ${name}`);
    await page.getByRole("button", { name: "Publish", exact: true }).click();
    await page.locator("table.messages").getByText(`of ${name}`, { exact: true }).waitFor();
    await page.reload();
    await page.locator("table.messages").getByText(`of ${name}`, { exact: true }).waitFor();
  }
  const { streams } = await v1(base, "GET", "streams");
  assert.deepEqual(streams.map(({ stream }) => stream).filter((name) => /^~*\.+$/.test(name)).sort(), [".", "..", "~.."]);
});

test("streams are found by their names", async (t) => {
  for (const name of ["find-me", "other"]) await v1(base, "POST", `streams/${name}`, {});
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/streams`);
  await page.getByLabel("Find").fill("FIND");
  await page.waitForURL(`${base}/console/streams?find=FIND`);
  await becomes(() => page.locator("table.list tbody th").allTextContents(), ["find-me"]);
  await page.reload();
  await becomes(() => page.locator("table.list tbody th").allTextContents(), ["find-me"]);
  await page.getByLabel("Find").fill("none of them");
  await page.getByRole("button", { name: "Show all" }).click();
  await page.getByRole("link", { name: "find-me" }).click();
  await page.getByRole("heading", { name: "find-me" }).waitFor();
});

test("a message is shown whole, and copied as a program", async (t) => {
  await fill(base, "whole", 3);
  await v1(base, "POST", "streams/whole/messages", { payload_base64: "/wA8" });
  await v1(base, "POST", "streams/whole/messages", { headers: { deep: { list: [1] } }, payload: "no { json" });
  const page = await open(t, browser, base, { allowed: ["410"] });
  await page.goto(`${base}/console/streams/whole`);
  await page.getByRole("button", { name: "3", exact: true }).click();
  await page.waitForURL(/open=3$/);
  const detail = page.getByRole("region", { name: "Message 3" });
  await detail.getByText(`"big": ${big}`).waitFor();
  await detail.getByRole("radio", { name: "Hex" }).check({ force: true });
  await page.waitForURL(/view=hex/);
  await detail.getByText('000000  7b 22 6e 22').waitFor();
  await detail.getByRole("button", { name: "curl that" }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.startsWith(`curl '${base}/v1/streams/whole/messages'`) && copied.includes(big), copied);
  await page.keyboard.press("Escape");
  await detail.waitFor({ state: "detached" });
  await page.goto(`${base}/console/streams/whole?open=4`);
  await page.getByText("The payload is not UTF-8").waitFor();
  await page.goto(`${base}/console/streams/whole?open=5`);
  await page.getByText("The payload is no JSON").waitFor();
  await page.getByRole("button", { name: "Publish again" }).click();
  await becomes(() => page.getByLabel("Payload", { exact: true }).inputValue(), "no { json");
  await becomes(() => page.getByLabel("Headers").inputValue(), '{"deep":{"list":[1]}}');
  await page.goto(`${base}/console/streams/whole?open=99`);
  await page.getByText("There is no message at this position").waitFor();
});

test("a stream is followed, paused without a loss, and read while it is paused", async (t) => {
  await fill(base, "live", 5);
  const say = (payload) => v1(base, "POST", "streams/live/messages", { payload });
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/streams/live`);
  await page.getByRole("button", { name: "Follow live" }).click();
  await page.waitForURL(/live=1$/);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByText("Connected", { exact: true }).waitFor();
  await say("one");
  await messageRows(page).filter({ hasText: "one" }).waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await say("two");
  await page.waitForTimeout(500);
  assert.equal(await messageRows(page).count(), 1);
  await page.getByRole("button", { name: "Go on" }).click();
  await messageRows(page).filter({ hasText: "two" }).waitFor();
  await say("three");
  await messageRows(page).filter({ hasText: "three" }).waitFor();
  await becomes(() => positions(page), [8, 7, 6]);
  await messageRows(page).filter({ hasText: "two" }).click();
  await page.getByText("Paused").waitFor();
  await page.getByRole("region", { name: "Message 7" }).getByText("two").waitFor();
  await page.getByRole("button", { name: "Browse" }).click();
  await page.locator("table[aria-label='Messages 1 to 8']").waitFor();
});

test("a stream that is too fast is shown in parts, and says how much it leaves out", async (t) => {
  await v1(base, "POST", "streams/fast", {});
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/streams/fast?live=1`);
  await page.getByText("Live", { exact: true }).waitFor();
  const messages = Array.from({ length: 1000 }, (_, n) => ({ payload: `${n}` }));
  let over = false;
  const flood = async () => { while (!over) await v1(base, "POST", "streams/fast/messages", { messages }); };
  const floods = [flood(), flood(), flood()];
  try {
    await page.getByText(/[\d,]+ positions left out/).waitFor({ timeout: 30_000 });
  } finally {
    over = true;
    await Promise.all(floods);
  }
  await v1(base, "POST", "streams/fast/messages", { payload: "the last" });
  await messageRows(page).filter({ hasText: "the last" }).waitFor({ timeout: 30_000 });
});

test("a stream with partitions, groups, and what is not there", async (t) => {
  await v1(base, "POST", "streams/parted", { partitions: 3 });
  await fill(base, "grouped", 4);
  await v1(base, "POST", "streams/grouped/groups/readers/commit", { position: 1 });
  const page = await open(t, browser, base, { allowed: ["404"] });
  await page.goto(`${base}/console/streams/parted`);
  await page.getByRole("link", { name: "parted/2" }).click();
  await page.getByText("There is no message yet").waitFor();
  await page.goto(`${base}/console/streams/grouped`);
  const group = page.getByRole("row").filter({ hasText: "readers" });
  await group.waitFor();
  await becomes(() => group.locator("th, td").allTextContents(), ["readers", "1", "3", "Reset …Drop …"]);
  await page.goto(`${base}/console/streams/missing`);
  await page.getByText("The stream could not be read").waitFor();
  await page.goto(`${base}/console/nowhere/at/all`);
  await page.getByText("There is nothing at this address").waitFor();
  assert.equal(await page.title(), "No such page · Tidewire");
});

test("the console works with the keyboard", async (t) => {
  await fill(base, "keys", 3);
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/streams/keys`);
  await messageRows(page).first().waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.getByRole("button", { name: "2", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("region", { name: "Message 2" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Message 2");
  await page.keyboard.press("Escape");
  await page.getByRole("region", { name: "Message 2" }).waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "2");
  await page.getByRole("link", { name: "Overview" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Overview", "the new page has the focus");
});
