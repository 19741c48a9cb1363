// Flows of a server in closed mode: signing in, and what a user may not.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { kill } from "../dead.js";
import { program, serve, v1 } from "../server.js";
import { tokenOf } from "../token.js";
import { becomes, launch, long, open } from "./browser.js";

const secret = "0123456789abcdef0123456789abcdef";
const allowed = ["401", "403"];
let server, browser, base, folder;
const admin = tokenOf(secret, "boss", "admin");
const user = tokenOf(secret, "u7", "user");

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "console-"));
  await writeFile(join(folder, "secret"), secret, { mode: 0o600 });
  const rules = ["admin: admin,read,publish,commit stream:**", "admin: metrics,connections server:*", "admin: admin,enqueue,consume,inspect queue:**", "user: read stream:open-*", "user: inspect queue:jobs", "user: enqueue queue:inbox", "admin: admin,query,append events:**", "user: query,append events:s#t:1", "admin: join,chat,presence,history,admin room:**", "user: join,presence room:hall"];
  [server, browser] = await Promise.all([serve("--auth-api-keys", "--auth-secret-file", join(folder, "secret"), ...rules.flatMap((rule) => ["--rule", rule])), launch()]);
  base = server.base;
  for (const name of ["open-1", "secret-1"]) {
    await v1(base, "POST", `streams/${name}`, {}, admin);
    await v1(base, "POST", `streams/${name}/messages`, { payload: `of ${name}` }, admin);
  }
});
after(async () => {
  await browser?.close();
  await server?.end();
  await rm(folder, { recursive: true, force: true });
});

async function enter(page, token) {
  await page.getByLabel("Token or API key").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Signs in, and waits until the page has the token: an address that is opened earlier is that of nobody. */
async function signIn(page, token) {
  await enter(page, token);
  await page.getByRole("button", { name: "Sign out" }).waitFor();
}

test("a user signs in, stays so in this tab, and signs out", async (t) => {
  const page = await open(t, browser, base, { allowed });
  const urls = [];
  page.on("request", (request) => urls.push(request.url()));
  await page.goto(`${base}/console/streams`);
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await enter(page, "no token");
  await page.getByText("The server does not accept this token.").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0, "a token that was refused is not kept");
  await signIn(page, `Bearer ${admin}`);
  await page.getByRole("link", { name: "open-1" }).waitFor();
  assert.equal(page.url(), `${base}/console/streams`, "the view that was asked for");
  await page.reload();
  await page.getByRole("link", { name: "secret-1" }).click();
  await page.getByRole("button", { name: "Follow live" }).click();
  await page.getByText("Live", { exact: true }).waitFor();
  await v1(base, "POST", "streams/secret-1/messages", { payload: "fresh" }, admin);
  await page.locator("table.messages").getByText("fresh").waitFor();
  await page.getByRole("link", { name: "Overview" }).click();
  await page.locator(".tile", { hasText: "Connections" }).getByText("highest 1").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length + localStorage.length), 0);
  assert.ok(urls.every((url) => !url.includes(admin.slice(0, 20))), "no address has the token");
});

long("a user sees what it may, and is told what it may not", async (t) => {
  const page = await open(t, browser, base, { allowed });
  await page.goto(`${base}/console/`);
  await signIn(page, user);
  await page.getByText("There are no figures").waitFor();
  await page.getByText("It needs the right “metrics server:*”.").waitFor();
  await page.getByRole("link", { name: "Streams" }).click();
  await page.getByRole("link", { name: "open-1" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "secret-1" }).count(), 0);
  await page.getByRole("link", { name: "open-1" }).click();
  await page.locator("table.messages").getByText("of open-1").waitFor();
  await page.getByText("Publish a message").click();
  await page.getByLabel("Payload", { exact: true }).fill("x");
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  await page.getByText("It needs the right “publish stream:open-1”.").waitFor();
  await v1(base, "POST", "streams/open-1/groups/readers/commit", { position: 1 }, admin);
  await page.getByRole("row").filter({ hasText: "readers" }).waitFor();
  assert.equal(await page.getByRole("button", { name: /Reset|Drop|Change/ }).count(), 0);
  await page.goto(`${base}/console/streams/secret-1?live=1`);
  await page.getByText("The stream could not be read").waitFor();
});

test("a user is offered what it may do with a queue, and told which right the rest needs", async (t) => {
  await kill(base, "jobs", [{ payload: "x" }], () => "no", admin);
  await v1(base, "POST", "queues/inbox", {}, admin);
  await v1(base, "POST", "queues/hidden", {}, admin);
  const page = await open(t, browser, base, { allowed });
  await page.goto(`${base}/console/queues`);
  await signIn(page, user);
  await page.getByRole("row").filter({ hasText: "inbox" }).getByText("It needs the right “inspect queue:inbox”.").waitFor();
  assert.equal(await page.getByRole("link", { name: "hidden" }).count(), 0);
  await page.getByRole("link", { name: "jobs" }).click();
  await page.getByText("It needs the right “admin queue:jobs”.").waitFor();
  await page.getByText("It needs the right “enqueue queue:jobs”.").waitFor();
  await page.getByRole("button", { name: "Dead letters" }).click();
  await page.locator("table.letters tbody tr").waitFor();
  assert.equal(await page.getByRole("button", { name: /Pause|Redrive|Purge|Enqueue/ }).count(), 0);
  assert.equal(await page.getByRole("checkbox").count(), 0);
  await page.goto(`${base}/console/queues/inbox`);
  await page.getByText("The queue could not be read").waitFor();
  await page.getByText("Enqueue a message").click();
  await page.getByLabel("Payload", { exact: true }).fill("x");
  await page.getByRole("button", { name: "Enqueue", exact: true }).click();
  await page.getByText("Stored at position 1.").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await signIn(page, admin);
  await page.goto(`${base}/console/queues/jobs?show=dead`);
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await page.getByRole("button", { name: "Purge chosen (0)" }).waitFor();
  await page.getByText("Enqueue a message").waitFor();
});

long("a user is offered what it may do in a room", async (t) => {
  const page = await open(t, browser, base, { allowed });
  await page.goto(`${base}/console/rooms/hall`);
  await signIn(page, user);
  assert.equal(await page.getByLabel("Your name").count(), 0, "the name is that of the token");
  await page.getByRole("button", { name: "Join" }).click();
  await page.getByText("It needs the right “chat room:hall”.").waitFor();
  await page.getByRole("list", { name: "Users" }).getByText("u7").waitFor();
  assert.equal(await page.getByRole("button", { name: /Remove|Send/ }).count(), 0);
  const boss = await open(t, browser, base, { allowed });
  await boss.goto(`${base}/console/rooms`);
  await signIn(boss, admin);
  await boss.getByRole("link", { name: "hall" }).click();
  await boss.getByRole("button", { name: "Remove u7" }).click();
  await boss.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText("You were removed from this room").waitFor();
  await page.goto(`${base}/console/rooms/secret`);
  await page.getByText("It needs the right “presence room:secret”.").waitFor();
  await page.getByText("It needs the right “join room:secret”.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Join" }).count(), 0);
});

long("a user whose rights are limited to a tag queries and appends with it", async (t) => {
  await v1(base, "POST", "events/stores/s", undefined, admin);
  await v1(base, "POST", "events", { store: "s", events: [{ type: "A", tags: ["t:1"] }, { type: "A", tags: ["t:2"] }] }, admin);
  const page = await open(t, browser, base, { allowed });
  await page.goto(`${base}/console/events/s`);
  await signIn(page, user);
  await page.getByText("It needs the right “query events:s”.").waitFor();
  await page.getByText("You cannot append here.").waitFor();
  await page.getByLabel("Tags, all of").fill("t:1");
  await page.getByLabel("Tags, all of").press("Enter");
  await page.getByText("1 event matches").waitFor();
  await page.getByText("Append an event").click();
  const form = page.locator("details.publish");
  await form.getByLabel("Type").fill("B");
  await form.getByLabel("Tags").fill("t:1");
  await form.getByLabel("Tags").press("Enter");
  await form.getByRole("button", { name: "Append" }).click();
  await page.getByText("Stored at position 3.").waitFor();
  await becomes(() => page.locator("table.events tbody th").allTextContents(), ["3", "1"]);
});

long("the inspector connects with the token of the session, another one, or none", async (t) => {
  const page = await open(t, browser, base, { allowed });
  const urls = [];
  page.on("websocket", (socket) => urls.push(socket.url()));
  await page.goto(`${base}/console/inspector`);
  await signIn(page, admin);
  const attempt = async (answer) => {
    await page.getByRole("button", { name: "Connect", exact: true }).click();
    await page.locator("table.frames tbody tr").first().filter({ hasText: answer }).waitFor();
    await page.getByRole("button", { name: "Disconnect" }).click();
    await page.getByRole("button", { name: "Clear" }).click();
  };
  await attempt('"user":"boss"');
  await page.getByLabel("with the token with which I am signed in").uncheck();
  await page.getByLabel("Token or API key").fill(user);
  await attempt('"user":"u7"');
  await page.getByLabel("Token or API key").fill("");
  await attempt('"authenticated":false');
  assert.ok(urls.every((url) => url === `${base.replace("http", "ws")}/ws`), "no address has a token");
  assert.equal(await page.evaluate((text) => document.body.innerText.includes(text) || Object.values(sessionStorage).includes(text), user), false);
});

long("who is signed in no longer is asked to sign in again", async (t) => {
  const page = await open(t, browser, base, { allowed: [...allowed, "WebSocket"] });
  const token = tokenOf(secret, "guest", "admin");
  await page.goto(`${base}/console/streams/open-1?live=1`);
  await signIn(page, token);
  await page.getByText("Live", { exact: true }).waitFor();
  await v1(base, "POST", "tokens/revoke", { user: "guest" }, admin);
  await page.getByText("The server does not accept your token any more").waitFor();
  await signIn(page, admin);
  await page.getByText("Live", { exact: true }).waitFor();
});

long("tidewire console signs in once", async (t) => {
  const print = () => promisify(execFile)(program, ["console", "--print", "--url", base, "--data-dir", server.data, "--allow", "read stream:**", "--allow", "metrics server:*"]);
  const { stdout } = await print();
  const page = await open(t, browser, base, { allowed });
  const urls = [];
  page.on("request", (request) => urls.push(request.url()));
  await page.goto(stdout.trim());
  await page.getByText("Connections of this server").waitFor();
  assert.equal(page.url(), `${base}/console/`, "the address has no key any more");
  assert.ok(urls.every((url) => !url.includes("tw_")), "no request has it in its address");
  await page.reload();
  await page.getByText("Connections of this server").waitFor();
  const other = await open(t, browser, base, { allowed });
  await other.goto(stdout.trim());
  await other.getByText("The key in the address was used already").waitFor();
  await other.goto((await print()).stdout.trim()); // in a tab that is open: only the part after # is new
  await other.getByText("Connections of this server").waitFor();
  assert.equal(other.url(), `${base}/console/`);
});

long("benchmarks need their right", async (t) => {
  const page = await open(t, browser, base, { allowed });
  await page.goto(`${base}/console/bench`);
  await signIn(page, user);
  await page.getByText("bench server:*").waitFor();
  assert.equal(await page.getByRole("button", { name: "Start" }).count(), 0);
});
