// One flow for each screen, of one server in open mode. The other flows of each screen are in its own file, for long runs.
import assert from "node:assert/strict";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join as path } from "node:path";
import { after, before, test } from "node:test";
import { kill } from "../dead.js";
import { result, write } from "../results.js";
import { serve, v1 } from "../server.js";
import { big, connected, fill, join, log, messageRows, messages, positions, say, tile, types, users } from "./acts.js";
import { becomes, launch, open } from "./browser.js";

let server, browser, base, folder;
before(async () => {
  folder = await mkdtemp(path(tmpdir(), "results-"));
  await chmod(folder, 0o755); // as root, PostgreSQL runs as another user
  [server, browser] = await Promise.all([serve("--results", path(folder, "results")), launch()]);
  base = server.base;
});
after(async () => {
  await browser?.close();
  await server?.end();
  await rm(folder, { recursive: true, force: true });
});

// Queues: first, when there is none.
{
  const stats = (queue) => v1(base, "GET", `queues/${queue}`);
  const rows = (page) => page.locator("table.letters tbody tr");

  test("a queue is created, filled, paused and resumed", async (t) => {
    const page = await open(t, browser, base, { allowed: ["400"] });
    await page.goto(`${base}/console/`);
    await page.getByRole("link", { name: "Queues", exact: true }).click();
    await page.getByText("There is no queue yet").waitFor();
    await page.getByLabel("Name").fill("made here/1");
    await page.getByRole("button", { name: "Create" }).click();
    await page.waitForURL(`${base}/console/queues/made%20here%2F1`);
    await page.getByText("No message is ready").waitFor();
    await page.getByText("Enqueue a message").click();
    await page.getByLabel("Delay in seconds").fill("x");
    await page.getByRole("button", { name: "Enqueue", exact: true }).click();
    await page.getByText("The delay is a number from 0 to 86,400.").waitFor();
    await page.getByLabel("Delay in seconds").fill("");
    await page.getByLabel("Headers").fill(`{"big":${big}}`);
    await page.getByRole("button", { name: "Enqueue", exact: true }).click();
    await page.getByText("A browser would round a number").waitFor();
    await page.getByLabel("Headers").fill('{"trace":"t1"}');
    await page.getByLabel("Key", { exact: true }).fill("k1");
    await page.getByLabel("Payload", { exact: true }).fill(`{"big":${big}}`);
    await page.getByLabel("Payload", { exact: true }).press("Control+Enter");
    await page.getByText("Stored at position 1.").waitFor();
    await tile(page, "Ready", "1");
    await page.getByRole("button", { name: "1", exact: true }).click();
    await page.waitForURL(/open=1$/);
    const detail = page.getByRole("region", { name: "Message 1" });
    await detail.getByText(`"big": ${big}`).waitFor();
    await detail.getByText('"trace"').waitFor();
    await page.keyboard.press("Escape");
    await detail.waitFor({ state: "detached" });
    await page.getByLabel("Delay in seconds").fill("600");
    await page.getByRole("button", { name: "Enqueue", exact: true }).click();
    await page.getByText(/Stored at position \d+, delayed\./).waitFor();
    await tile(page, "Ready", "2"); // a server that consumes moves it to those that are delayed
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("Paused: no server delivers").waitFor();
    assert.equal((await stats("made%20here%2F1")).paused, true);
    await page.getByRole("link", { name: "Queues" }).last().click();
    const row = page.getByRole("row").filter({ hasText: "made here/1" });
    await row.getByText("paused").filter({ visible: true }).waitFor();
    assert.deepEqual((await row.locator("td").allTextContents()).slice(0, 4), ["2", "0", "0", "0"]);
    await row.getByRole("link").click();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByText("The queue delivers.").waitFor();
    assert.equal((await stats("made%20here%2F1")).paused, false);
  });

  test("dead letters are read, chosen, redriven and purged", async (t) => {
    await kill(base, "some", messages(60), (position) => (position % 2 ? "card was declined" : "timeout"));
    const page = await open(t, browser, base);
    await page.goto(`${base}/console/queues/some`);
    await tile(page, "Dead", "60");
    await page.getByRole("button", { name: "Dead letters" }).click();
    await page.waitForURL(/show=dead$/);
    await rows(page).nth(49).waitFor();
    await page.getByRole("button", { name: "Next page" }).click();
    await page.waitForURL(/after=/);
    await page.getByRole("button", { name: "60", exact: true }).waitFor();
    assert.equal(await rows(page).count(), 10);
    await page.getByRole("button", { name: "First page" }).click();
    await page.getByRole("button", { name: "1", exact: true }).click();
    const detail = page.getByRole("region", { name: "Message 1" });
    await detail.getByText("card was declined").waitFor();
    await detail.getByText(`"big": ${big}`).waitFor();
    await detail.getByRole("button", { name: "Redrive this" }).click();
    await page.getByText("1 of 1 redriven.").waitFor();
    await tile(page, "Dead", "59");
    await page.getByLabel("Choose 2", { exact: true }).check();
    await page.getByLabel("Choose 3", { exact: true }).check();
    await page.getByRole("button", { name: "Purge chosen (2)" }).click();
    const dialog = page.getByRole("dialog", { name: "Purge 2 dead letters?" });
    await dialog.getByText("Removed for ever.").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.equal((await stats("some")).dead, 59, "nothing is done without an answer");
    await page.getByRole("button", { name: "Purge chosen (2)" }).click();
    await dialog.getByRole("button", { name: "Purge" }).click();
    await page.getByText("2 of 2 purged.").waitFor();
    await tile(page, "Dead", "57");
    await page.goto(`${base}/console/queues/some?show=dead&open=2`);
    await page.getByText("This message is not here").waitFor();
  });
}

// The overview, and streams.
{

  test("the overview shows what happens", async (t) => {
    await fill(base, "busy", 200);
    const page = await open(t, browser, base);
    await page.goto(`${base}/console/`);
    await becomes(() => page.title(), "Overview · Tidewire");
    await page.locator(".tile", { hasText: "Stored" }).getByText(/highest [1-9]/).waitFor();
    await becomes(() => page.locator(".plot .drawing").count(), 6);
    assert.match(await page.locator(".plot .drawing").first().getAttribute("aria-label"), /The newest values: streams, queues, events \d+\/s/);
    await page.locator(".card", { hasText: "PostgreSQL" }).getByText("answers", { exact: true }).waitFor();
    const asked = [];
    page.on("request", (request) => request.url().includes("/v1/overview") && asked.push(request.url()));
    await page.waitForTimeout(2500);
    assert.ok(asked.length >= 2 && asked.every((url) => /after=\d{10}&worst=true$/.test(url)), `it asks for what is new: ${asked}`);
  });

  test("a stream is created, and published to", async (t) => {
    const page = await open(t, browser, base);
    await page.goto(`${base}/console/streams`);
    await page.getByLabel("Name").fill("stream here/1");
    await page.getByLabel("can be read by key").check();
    await page.getByRole("button", { name: "Create" }).click();
    await page.waitForURL(`${base}/console/streams/stream%20here%2F1`);
    await page.getByText("There is no message yet").waitFor();
    await page.getByText("Publish a message").click();
    await page.getByLabel("Key", { exact: true }).last().fill("k1");
    await page.getByLabel("Headers").fill(`{"big":${big}}`);
    await page.getByLabel("Payload", { exact: true }).fill(`{"big":${big}}`);
    await page.getByRole("button", { name: "Publish", exact: true }).click();
    await page.getByText("A browser would round a number").waitFor();
    await page.getByLabel("Headers").fill('{"trace":"t1"}');
    await page.getByLabel("Payload", { exact: true }).press("Control+Enter");
    await page.getByText("Stored at position 1.").waitFor();
    await messageRows(page).filter({ hasText: big }).waitFor();
    const { messages } = await v1(base, "GET", "streams/stream%20here%2F1/messages");
    assert.deepEqual([messages[0].key, messages[0].headers, messages[0].payload], ["k1", { trace: "t1" }, `{"big":${big}}`]);
  });

  test("messages are browsed by position, key and time, and each view has an address", async (t) => {
    await fill(base, "browse", 130);
    await new Promise((resolve) => setTimeout(resolve, 2100));
    const time = new Date().toISOString().slice(0, 19);
    await v1(base, "POST", "streams/browse/messages", { key: "late", payload: "late" });
    const page = await open(t, browser, base);
    await page.goto(`${base}/console/streams/browse`);
    await messageRows(page).first().waitFor();
    await becomes(() => positions(page), Array.from({ length: 50 }, (_, i) => 131 - i));
    await page.getByRole("button", { name: "Older" }).click();
    await page.waitForURL(/after=31$/);
    await page.reload();
    await messageRows(page).first().waitFor();
    await becomes(() => positions(page), Array.from({ length: 50 }, (_, i) => 81 - i));
    await page.getByRole("button", { name: "Newer" }).click();
    await page.waitForURL(/after=81$/);
    await page.getByRole("button", { name: "Oldest" }).click();
    await page.locator("table[aria-label='Messages 1 to 50']").waitFor();
    await page.goBack();
    await page.waitForURL(/after=81$/);
    await page.getByLabel("From position").fill("1,0");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.waitForURL(/after=9$/);
    await page.getByLabel("Key", { exact: true }).first().fill("b");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.waitForURL(/key=b/);
    await page.locator("table[aria-label='Messages 11 to 128']").waitFor();
    assert.ok((await page.locator("td.key").allTextContents()).every((key) => key === "b"));
    await page.getByLabel("Key", { exact: true }).first().fill("");
    await page.getByLabel("or time").fill(time);
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.waitForURL(/after=130$/);
    await page.locator("table[aria-label='Messages 131 to 131']").waitFor();
    await page.getByLabel("From position").fill("x");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.getByText("A position is a whole number, 0 or more.").waitFor();
  });
}

// Events.
{
  const rows = (page) => page.locator("table.events tbody tr");
  const positions = (page) => rows(page).locator("th").allTextContents();

  test("a store is created, an event is appended, and a condition stops the next one", async (t) => {
    const page = await open(t, browser, base, { allowed: ["400", "404", "409", "410"] });
    await page.goto(`${base}/console/`);
    await page.getByRole("link", { name: "Events", exact: true }).click();
    await page.getByText("There is no event store yet").waitFor();
    await page.getByLabel("Name").fill("made here/1");
    await page.getByRole("button", { name: "Create" }).click();
    await page.waitForURL(`${base}/console/events/made%20here%2F1`);
    await page.getByText("There is no event yet").waitFor();
    await page.getByText("0 events match").waitFor();
    await page.getByText("Append an event").click();
    const form = page.locator("details.publish");
    await form.getByLabel("Type").fill("Offered");
    await form.getByLabel("Tags").fill("course:1");
    await form.getByLabel("Tags").press("Enter");
    await form.getByLabel("Id").fill("e1");
    await form.getByLabel("Data").fill("{seats}");
    await form.getByRole("button", { name: "Append" }).click();
    await page.getByText("Data are JSON").waitFor();
    await form.getByLabel("Data").fill(`{"seats": ${big}}`);
    await page.keyboard.press("Control+Enter");
    await page.getByText("Stored at position 1.").waitFor();
    await page.getByRole("button", { name: "1", exact: true }).click();
    await page.locator(".payload").getByText(big).waitFor();
    await page.getByRole("button", { name: "Test a condition after it" }).click();
    await page.getByText("It would hold.").waitFor();
    await page.getByLabel("No match after position").fill("0");
    await page.getByRole("button", { name: "Test", exact: true }).click();
    await page.getByText("It would not hold.").waitFor();
    await form.getByLabel("only if no event after position 0").check();
    await form.getByLabel("Id").fill("");
    await form.getByRole("button", { name: "Append" }).click();
    await page.getByText("the condition does not hold").waitFor();
    await page.getByRole("button", { name: "Open event 1" }).waitFor();
    await page.getByLabel("No match after position").fill("1");
    await page.getByRole("button", { name: "Test", exact: true }).click();
    await page.getByText("It would hold.").waitFor();
    await form.getByRole("button", { name: "Append" }).click();
    await page.getByText("Stored at position 2.").waitFor();
    await page.getByText("It would not hold.").waitFor();
    await becomes(() => positions(page), ["2", "1"]);
    await page.getByLabel("No match after position").fill("99");
    await page.getByRole("button", { name: "Test", exact: true }).click();
    await page.getByText("It would not hold, or this is not known.").waitFor();
  });
}

// Groups.
{
  const row = (page, group) => page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: group, exact: true }) });
  const cells = (page, group) => () => row(page, group).locator("td.n").allTextContents();

  test("a group is reset, with a preview and a question, and dropped", async (t) => {
    await v1(base, "POST", "streams/grouped", {});
    for (let i = 0; i < 2; i++) await v1(base, "POST", "streams/grouped/messages", { messages: Array.from({ length: 1000 }, () => ({ payload: "x" })) });
    for (const [group, position] of [["far", 1900], ["near", 10]]) await v1(base, "POST", `streams/grouped/groups/${group}/commit`, { position });
    const page = await open(t, browser, base);
    await page.goto(`${base}/console/streams/grouped`);
    await page.getByRole("button", { name: "Reset near" }).click();
    await page.waitForURL(/group=near$/);
    await page.getByLabel("near continues with").selectOption("position");
    await page.getByLabel("Position", { exact: true }).fill("501");
    await page.getByRole("button", { name: "Preview" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("From position 10 to 500: at most 490 messages will be skipped.").waitFor();
    await dialog.getByText(/The next message is 501, of 20/).waitFor();
    await dialog.getByRole("button", { name: "Reset" }).click();
    await page.getByText("near continues after position 500.").waitFor();
    await becomes(cells(page, "near"), ["500", "1,500"]);
    await page.goto(`${base}/console/streams/grouped?group=far`);
    await page.getByRole("button", { name: "Preview" }).click();
    await dialog.getByText("From position 1,900 to 0: at most 1,900 messages will be read again.").waitFor();
    assert.equal(await dialog.getByRole("button", { name: "Reset" }).getAttribute("aria-disabled"), "true");
    await dialog.getByRole("textbox").fill("far");
    await dialog.getByRole("button", { name: "Reset" }).click();
    await becomes(cells(page, "far"), ["0", "2,000"]);
    await page.getByRole("button", { name: "Reset far" }).click();
    await page.getByLabel("far continues with").selectOption("time");
    await page.getByLabel("Time", { exact: true }).fill("2001-01-01T00:00");
    await page.getByRole("button", { name: "Preview" }).click();
    await dialog.getByText("The group is at position 0 already.").waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await page.getByLabel("far continues with").selectOption("position");
    await page.getByLabel("Position", { exact: true }).fill("9000");
    await page.getByRole("button", { name: "Preview" }).click();
    await page.getByText("The last position is 2,000.").waitFor();
    await page.getByRole("button", { name: "Drop near" }).click();
    await dialog.getByRole("button", { name: "Drop" }).click();
    await page.getByText("near is dropped.").waitFor();
    await becomes(() => row(page, "near").count(), 0);
  });
}

// The inspector.
{
  const rows = (page) => page.locator("table.frames tbody tr");
  const send = (page) => page.getByRole("button", { name: "Send", exact: true });

  test("a request and its answer are in the log, with the time between them", async (t) => {
    await v1(base, "POST", "streams/orders");
    await v1(base, "POST", "queues/mail", {});
    const page = await connected(t, browser, base, `?message=${encodeURIComponent("publish a message")}`);
    await becomes(() => types(page), ["hello"]);
    await becomes(async () => JSON.parse(await page.getByLabel("Frame, as it is sent").inputValue()).id, 1);
    await page.getByLabel("Frame, as it is sent").press("Control+Enter");
    await becomes(() => types(page), ["ok", "publish", "hello"]);
    assert.match(await rows(page).first().locator("td.n").last().textContent(), /^[\d.]+ (µs|ms|s)$/);
    assert.match(await rows(page).nth(1).locator("td.size").textContent(), /^\d+ B$/);
    assert.equal(JSON.parse(await page.getByLabel("Frame, as it is sent").inputValue()).id, 2, "the next id");
    await page.getByLabel("Frame, as it is sent").fill("{no JSON");
    await send(page).click();
    await becomes(() => types(page), ["–", "ok", "publish", "hello"]);
    await rows(page).nth(2).click();
    await page.getByRole("heading", { name: "Frame 2, sent" }).waitFor();
    await page.getByRole("button", { name: "Send again …" }).click();
    assert.ok((await page.getByLabel("Frame, as it is sent").inputValue()).includes("customer-7"));
    await page.getByRole("button", { name: "Close the frame" }).click();
    await page.getByRole("button", { name: "Disconnect" }).click();
    await page.getByText("You have ended the connection.").waitFor();
    await page.getByLabel("Frame, as it is sent").press("Control+Enter");
    await page.getByText("Connect first.").waitFor();
  });
}

// Replays.
{
  test("messages are counted, asked about and replayed in order, and the address has what is asked for", async (t) => {
    await v1(base, "POST", "streams/replayed", { keyed: true });
    for (let i = 0; i < 3; i++) {
      const messages = Array.from({ length: 1000 }, (_, j) => ({ key: `k${j % 4}`, headers: { n: j }, payload: `{"n":${i * 1000 + j + 1}}` }));
      await v1(base, "POST", "streams/replayed/messages", { messages });
    }
    await v1(base, "POST", "streams/copy", {});
    await v1(base, "POST", "queues/mail", {});
    const page = await open(t, browser, base, { allowed: ["404", "400"] });
    await page.goto(`${base}/console/streams/replayed`);
    await page.getByRole("button", { name: "Replay …" }).click();
    await page.getByLabel("Name").fill("nowhere");
    await page.getByRole("button", { name: "Count first" }).click();
    await page.getByText("There is no stream \"nowhere\".").waitFor();
    assert.equal(await page.getByRole("alert").getByRole("link", { name: "streams" }).getAttribute("href"), "/console/streams");
    await page.getByLabel("Name").fill("replayed");
    await page.getByRole("button", { name: "Count first" }).click();
    await page.getByText("not where the messages are already").waitFor();
    await page.getByLabel("Name").fill("copy");
    await page.getByLabel("From position").fill("101");
    await page.getByLabel("to", { exact: true }).fill("2,600");
    await page.getByRole("button", { name: "Count first" }).click();
    await page.waitForURL(/into=stream&target=copy&from=101&to=2600/);
    await page.getByRole("row", { name: /^Messages/ }).getByText("2,500, ").waitFor();
    await page.getByRole("row", { name: /^First/ }).getByText(/^101, of 20/).waitFor();
    await page.getByRole("row", { name: /^Target/ }).getByText("last position 0").waitFor();
    assert.deepEqual((await v1(base, "GET", "streams/copy")).head, 0, "a count stores nothing");
    await page.getByRole("button", { name: "Replay 2,500 messages …" }).click();
    const dialog = page.getByRole("dialog");
    assert.equal(await dialog.getByRole("button", { name: "Replay" }).getAttribute("aria-disabled"), "true");
    await dialog.getByRole("textbox").fill("copy");
    await dialog.getByRole("button", { name: "Replay" }).click();
    await page.getByText("is done: 2,500 stored, up to position 2,600 of 2,600.").waitFor();
    const { messages } = await v1(base, "GET", "streams/copy/messages?limit=1000");
    assert.deepEqual(messages.map(({ payload }) => payload), Array.from({ length: 1000 }, (_, i) => `{"n":${101 + i}}`));
    assert.deepEqual([messages[0].key, messages[0].headers], ["k0", { n: 100 }]);
    await page.reload();
    await becomes(() => page.getByLabel("Name").inputValue(), "copy");
  });
}

// Searches.
{

  test("messages are found by text and by a path, with progress, and the address has the search", async (t) => {
    await v1(base, "POST", "streams/searched", { keyed: true });
    for (let i = 0; i < 25; i++) {
      const messages = Array.from({ length: 1000 }, (_, j) => ({ key: `k${j % 4}`, headers: { trace: `T-${i * 1000 + j + 1}` }, payload: `{"n":${i * 1000 + j + 1},"deep":{"odd":${j % 2 === 0}}}` }));
      await v1(base, "POST", "streams/searched/messages", { messages });
    }
    const page = await open(t, browser, base);
    await page.goto(`${base}/console/streams/searched`);
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByText("Nothing is looked for yet").waitFor();
    await page.getByLabel("Contains").fill("t-1234");
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await page.waitForURL(/text=t-1234/);
    await page.getByText("Read 25,000 of 25,000 positions, 11 found.").waitFor();
    await becomes(() => positions(page), [...Array.from({ length: 10 }, (_, i) => 12349 - i), 1234]);
    await page.getByLabel("same case").check();
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await page.getByText("No message matches").waitFor();
    await page.getByLabel("Contains").fill("");
    await page.getByLabel("JSON path").fill("deep.odd");
    await page.getByLabel("is", { exact: true }).fill("true");
    await page.getByLabel("Key", { exact: true }).first().fill("k2");
    await page.getByLabel("From position").fill("24,000");
    await page.getByLabel("to", { exact: true }).fill("24010");
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await page.waitForURL(/path=deep.odd&value=true&key=k2&from=24000&to=24010/);
    await becomes(() => positions(page), [24007, 24003]);
    await page.reload();
    await page.getByText("All is read.").waitFor();
    await becomes(() => positions(page), [24007, 24003]);
    await page.getByRole("button", { name: "24,003" }).click();
    await page.getByRole("heading", { name: "Message 24,003" }).waitFor();
    await page.getByRole("button", { name: "Browse" }).click();
    await page.waitForURL(`${base}/console/streams/searched`);
  });
}

// Benchmarks.
{
  const row = (page, name) => page.getByRole("row").filter({ has: page.getByLabel(`Compare ${name}`, { exact: true }) });

  test("results are found, opened and compared", async (t) => {
    const page = await open(t, browser, base);
    await page.goto(`${base}/console/`);
    await page.getByRole("link", { name: "Bench", exact: true }).click();
    await page.getByText("There is no result yet").waitFor();
    await write(path(folder, "results"), {
      before: result("ingest", 1000), after: result("ingest", 2000, { started: "2026-03-02T12:00:00Z", params: { payload: 200 } }),
      other: result("queue", 5, { valid: false, checks: [{ name: "lost", ok: false, detail: "1" }] }), broken: "{", foreign: { a: 1 },
    });
    await page.reload();
    await row(page, "before").getByText("1,000 messages/s").waitFor();
    await row(page, "other").getByText("INVALID").waitFor();
    assert.equal(await page.getByRole("rowheader").count(), 3);
    await page.getByLabel("Find").fill("queue");
    await page.getByText("1 of 3 in").waitFor();
    await page.getByLabel("Find").fill("");

    await page.getByLabel("Compare before").check();
    await page.getByLabel("Compare after").check();
    await page.getByRole("button", { name: "Compare", exact: true }).click();
    await page.waitForURL(/before=before&after=after$/);
    await page.getByText("parameter payload: 100, and 200").waitFor();
    const rate = page.getByRole("row").filter({ hasText: "messages_per_second" });
    await rate.getByText("+100.0 %").waitFor();
    assert.equal(await page.getByRole("row").filter({ hasText: "lost" }).count(), 1);
    await page.getByRole("button", { name: "Swap" }).click();
    await rate.getByText("−50.0 %").waitFor();
    await page.getByRole("button", { name: "Close" }).click();
    await page.waitForURL(/bench$/);
  });
}

// Rooms.
{

  test("a room is opened, two users join it, chat, see each other come and leave", async (t) => {
    const [ann, bob] = [await open(t, browser, base), await open(t, browser, base)];
    await ann.goto(`${base}/console/`);
    await ann.getByRole("link", { name: "Rooms", exact: true }).click();
    await ann.getByText("Nobody is in a room now").waitFor();
    await ann.getByLabel("Name").fill("tea/1");
    await ann.getByRole("button", { name: "Open" }).click();
    await ann.waitForURL(`${base}/console/rooms/tea%2F1`);
    await ann.getByText("You see chats while you are in the room").waitFor();
    await join(ann, base, "tea%2F1", "ann");
    assert.match(ann.url(), /as=ann$/);
    await ann.getByText("1 connection, 1 user with a name").waitFor();
    await join(bob, base, "tea%2F1", "bob");
    await log(ann).getByText("bob has joined.").waitFor();
    await becomes(() => users(ann), ["ann", "bob"]);
    await becomes(() => users(bob), ["ann", "bob"]);
    await say(bob, "hello <b>ann</b>");
    const row = log(ann).getByRole("listitem").filter({ hasText: "hello <b>ann</b>" });
    await row.getByText("bob", { exact: true }).waitFor();
    await log(bob).getByText("hello <b>ann</b>").waitFor();
    assert.equal(await bob.getByLabel("Say").inputValue(), "");
    await bob.getByRole("button", { name: "Leave" }).click();
    await log(ann).getByText("bob has left.").waitFor();
    await log(bob).getByText("You are not in the room any more.").waitFor();
    await bob.getByRole("link", { name: "Rooms" }).last().click();
    await bob.getByRole("row").filter({ hasText: "tea/1" }).getByRole("cell").first().filter({ hasText: /^1$/ }).waitFor();
    await bob.getByLabel("Find").fill("coffee");
    await bob.getByText("No room with this in its name has members").waitFor();
    await bob.getByLabel("Find").fill("tea");
    await bob.getByRole("link", { name: "tea/1" }).waitFor();
    await ann.getByRole("link", { name: "Streams" }).click();
    await bob.getByText("No room with this in its name has members").waitFor(); // who looks at something else is not in the room any more
  });
}
