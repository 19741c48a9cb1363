// The screen of queues, of a server in open mode.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { kill } from "../dead.js";
import { serve, v1 } from "../server.js";
import { big, messages, tile } from "./acts.js";
import { becomes, launch, open } from "./browser.js";
import { sockets } from "./sockets.js";

let server, browser, base;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  base = server.base;
});
after(async () => {
  await browser?.close();
  await server?.end();
});

const stats = (queue) => v1(base, "GET", `queues/${queue}`);
const rows = (page) => page.locator("table.letters tbody tr");

test("the consumers of a queue are shown as long as they consume, and lead to their connections", async (t) => {
  await v1(base, "POST", "queues/worked");
  const page = await open(t, browser, base, { allowed: ["404", "DISCONNECTED"] });
  await page.goto(`${base}/console/queues/worked`);
  await page.getByRole("button", { name: "Consumers" }).click();
  await page.waitForURL(/show=consumers$/);
  await page.getByText("Nobody consumes this queue here").waitFor();
  const others = await sockets(browser, base);
  await others.connect("", [{ type: "consume", queue: "worked", credits: 1234 }]);
  const row = page.getByRole("group", { name: "Consumers" }).locator("tbody tr");
  const numbers = async () => (await row.locator("td.n").allTextContents()).filter((_, i) => i % 3 < 2);
  await becomes(async () => `${await numbers()}`, "0,1,234");
  await v1(base, "POST", "queues/worked/messages", { payload: "1" });
  await becomes(async () => `${await numbers()}`, "1,1,234");
  await v1(base, "POST", "queues/worked/receive");
  await page.getByText("HTTP, all clients").waitFor();
  await page.getByText("2 consumers.").waitFor();
  await row.getByRole("link").click();
  await page.getByRole("region", { name: "Open here" }).getByRole("link", { name: "worked" }).waitFor();
  await page.getByRole("button", { name: "Disconnect", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Disconnect", exact: true }).click();
  await page.goto(`${base}/console/queues/worked?show=consumers`);
  await page.getByText("HTTP, all clients").waitFor();
  await becomes(() => row.count(), 1);
  await page.context().setOffline(true);
  await page.getByText("This is not up to date").waitFor();
  await page.context().setOffline(false);
});

test("a list of streams says which of them hold the messages of a queue", async (t) => {
  await v1(base, "POST", "queues/plain");
  await v1(base, "POST", "queues/ranked", { priorities: 2 });
  for (const ordinary of ["ranked", "ranked/2", "plain/0"]) await v1(base, "POST", `streams/${encodeURIComponent(ordinary)}`);
  const page = await open(t, browser, base, { allowed: ["409"] }); // a queue's stream has no retention
  await page.goto(`${base}/console/streams`);
  const marked = () => page.getByRole("row").filter({ hasText: "holds the messages of" }).locator("th > a").allTextContents();
  await becomes(async () => (await marked()).filter((name) => /ranked|plain/.test(name)), ["plain", "ranked/0", "ranked/1"]);
  await page.getByRole("link", { name: "ranked/1", exact: true }).click();
  await page.getByRole("link", { name: "queue ranked" }).click();
  await page.waitForURL(`${base}/console/queues/ranked`);
});

test("a queue with priorities takes one", async (t) => {
  await v1(base, "POST", "queues/urgent", { priorities: 3 });
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/queues/urgent`);
  await page.getByText("There are 3 priorities.").waitFor();
  await page.getByText("Enqueue a message").click();
  await page.getByLabel("Priority").fill("3");
  await page.getByRole("button", { name: "Enqueue", exact: true }).click();
  await page.getByText("The priority is a whole number from 0 to 2.").waitFor();
  await page.getByLabel("Priority").fill("2");
  await page.getByRole("button", { name: "Enqueue", exact: true }).click();
  await page.getByText(/Stored at position/).waitFor();
  await tile(page, "Ready", "1");
});

test("dead letters are grouped by reason and filtered, and those that match are changed by a job", async (t) => {
  await kill(base, "grouped", messages(30), (position) => (position % 3 ? "card was declined" : position % 2 ? "" : "timeout"));
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/queues/grouped?show=dead`);
  await page.getByRole("button", { name: "Group by reason" }).click();
  const groups = page.getByRole("region", { name: "By reason" });
  await groups.getByText("Of 30.").waitFor();
  assert.deepEqual((await groups.locator("tbody th, tbody td:nth-child(2)").allTextContents()), ["card was declined", "20", "none", "5", "timeout", "5"]);
  await groups.getByRole("button", { name: "timeout" }).click();
  await page.waitForURL(/reason=timeout/);
  await page.getByRole("button", { name: "Redrive all that match" }).waitFor();
  assert.equal(await rows(page).count(), 5);
  await page.reload();
  await rows(page).nth(4).waitFor();
  assert.equal(await rows(page).count(), 5, "the filter is in the address");
  await page.getByRole("button", { name: "Redrive all that match" }).click();
  await page.getByRole("dialog", { name: "Redrive 5 dead letters?" }).getByRole("button", { name: "Redrive" }).click();
  await page.getByText("is done: 5 changed.").waitFor();
  await tile(page, "Dead", "25");
  await page.getByText("None matches the filter.").waitFor();
  await page.getByRole("button", { name: "Show all" }).click();
  await page.getByLabel("Key", { exact: true }).first().fill("k1");
  await page.getByLabel("Attempts from").fill("x");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.getByText("A number of attempts is a whole number").waitFor();
  await page.getByLabel("Attempts from").fill("1");
  await page.getByLabel("Died from").fill("2020-01-01T00:00:00");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/key=k1.*min_attempts=1.*since=2020/);
  await page.getByRole("button", { name: "Purge all that match" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Purge" }).click();
  await page.getByText(/Purge of .* is done: \d+ changed\./).waitFor();
  await page.getByText("None matches the filter.").waitFor();
  assert.ok((await v1(base, "GET", "queues/grouped/dead")).dead.every(({ key }) => key !== "k1"));
});

test("an act on more than 1,000 wants the name of the queue, and its job can be stopped", async (t) => {
  await kill(base, "crowd", Array.from({ length: 1100 }, (_, i) => ({ payload: `${i}` })), () => "no");
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/queues/crowd?show=dead&reason=no`);
  await page.getByRole("button", { name: "Purge all that match" }).click();
  const dialog = page.getByRole("dialog", { name: "Purge 1,100 dead letters?" });
  await dialog.getByLabel("type the name crowd").fill("crow");
  await page.keyboard.press("Enter");
  await page.waitForTimeout(300);
  assert.equal((await stats("crowd")).dead, 1100);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Show all" }).click();
  await page.getByRole("button", { name: "Purge all …" }).click();
  await dialog.getByLabel("type the name crowd").fill("crowd");
  await dialog.getByRole("button", { name: "Purge" }).click();
  await page.getByText("is done: 1,100 changed.").waitFor();
  await tile(page, "Dead", "0");
  await page.getByText("There is no dead letter").waitFor();
  let stopped;
  const job = { job: "a", queue: "crowd", act: "redrive", state: "running", changed: 500, after: 9, started: new Date().toISOString() };
  await page.route("**/v1/queues/crowd/jobs*", (route) => route.fulfill({ json: { jobs: [job] } }));
  await page.route("**/v1/queues/crowd/jobs/a", (route) => {
    stopped = route.request().method();
    job.state = "stopped";
    return route.fulfill({ json: job });
  });
  await page.getByRole("progressbar").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("was stopped: 500 changed.").waitFor();
  assert.equal(stopped, "DELETE");
});

test("a dead letter is edited, and redriven letters have a limit", async (t) => {
  await kill(base, "edited", messages(4), () => "no");
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/queues/edited?show=dead&open=2`);
  await page.getByRole("button", { name: "Edit …" }).click();
  const form = page.locator("details", { hasText: "Edit message 2" });
  await form.getByText("A browser would round").waitFor({ state: "detached" });
  assert.equal(await form.getByLabel("Payload").inputValue(), `{"n":1,"big":${big}}`);
  assert.equal(await form.getByLabel("Key", { exact: true }).inputValue(), "k1");
  await form.getByRole("button", { name: "Cancel" }).click();
  await form.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Edit …" }).click();
  await form.getByLabel("Payload").fill('{"mended":true}');
  await form.getByRole("button", { name: "Replace" }).click();
  await page.getByText("Message 2 was replaced.").waitFor();
  await tile(page, "Dead", "3");
  assert.deepEqual((await v1(base, "GET", "queues/edited/messages")).messages.map(({ payload, key }) => [payload, key]), [['{"mended":true}', "k1"]]);
  await page.getByRole("button", { name: "Redrive all …" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("At most, in a second").fill("x");
  await dialog.getByRole("button", { name: "Redrive" }).click();
  await dialog.getByText("The limit is a whole number from 0 to 100,000.").waitFor();
  await dialog.getByLabel("At most, in a second").fill("50");
  await dialog.getByRole("button", { name: "Redrive" }).click();
  await page.getByText("is done: 3 changed.").waitFor();
  assert.equal((await v1(base, "GET", "queues/edited/jobs")).jobs[0].per_second, 50);
});

test("a queue is changed, emptied and dropped, and a unique key is stored once", async (t) => {
  await v1(base, "POST", "queues/brief", {});
  const page = await open(t, browser, base, { allowed: ["404"] });
  await page.goto(`${base}/console/queues/brief`);
  await page.getByText("Enqueue a message").click();
  await page.getByLabel("Unique key").fill("once");
  await page.getByRole("button", { name: "Enqueue", exact: true }).click();
  await page.getByText("A unique key holds for 1 second or more.").waitFor();
  await page.getByLabel("for seconds").fill("600");
  await page.getByRole("button", { name: "Enqueue", exact: true }).click();
  await page.getByText("Stored at position 1.").waitFor();
  await page.getByRole("button", { name: "Enqueue", exact: true }).click();
  await page.getByText("Not stored: the message at position 1 has this unique key.").waitFor();
  await page.getByRole("img", { name: /Messages, since you opened this page.*ready 1,/ }).waitFor();
  await page.getByText("Change this queue").click();
  await page.getByLabel("Attempts").fill("0");
  await page.getByRole("button", { name: "Change options" }).click();
  await page.getByText("The number of attempts is more than 0.").waitFor();
  await page.getByLabel("Attempts").fill("7");
  await page.getByLabel("First pause").fill("0.5");
  await page.getByRole("button", { name: "Change options" }).click();
  await page.getByText("after 7 attempts").waitFor();
  assert.equal((await v1(base, "GET", "queues/brief/options")).retry_min_ms, 500);
  await page.getByRole("button", { name: "Purge waiting messages …" }).click();
  await page.getByRole("dialog", { name: "Purge about 1 message?" }).getByRole("button", { name: "Purge" }).click();
  await page.getByText("1 purged.").waitFor();
  await tile(page, "Ready", "0");
  await page.getByRole("button", { name: "Drop the queue …" }).click();
  await page.getByRole("dialog", { name: "Drop this queue?" }).getByRole("button", { name: "Drop" }).click();
  await page.waitForURL(`${base}/console/queues`);
  await page.getByRole("link", { name: "edited" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "brief" }).count(), 0);
});

test("queues that are not there, acts that fail, and a server that is away", async (t) => {
  await kill(base, "fails", messages(2), () => "no");
  const page = await open(t, browser, base, { allowed: ["404", "429", "ERR_INTERNET_DISCONNECTED"] });
  await page.goto(`${base}/console/queues/missing`);
  await page.getByText("The queue could not be read").waitFor();
  await page.goto(`${base}/console/queues?find=none`);
  await page.getByRole("button", { name: "Show all" }).click();
  await page.getByRole("link", { name: "fails" }).click();
  await page.getByRole("button", { name: "Dead letters" }).click();
  await page.route("**/dead/purge", (route) => route.fulfill({ status: 429, json: { error: { code: "too_many_jobs", message: "four jobs run already" } } }));
  await page.getByRole("button", { name: "Purge all …" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Purge" }).click();
  await dialog.getByText("Four jobs run already.").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  assert.equal((await stats("fails")).dead, 2);
  await page.context().setOffline(true);
  await page.getByText("This is not up to date").waitFor();
  await page.context().setOffline(false);
  await page.getByText("This is not up to date").waitFor({ state: "detached" });
});
