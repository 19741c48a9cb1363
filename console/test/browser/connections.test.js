// The screens of connections and of access, of servers in closed and in open mode.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
import { tokenOf } from "../token.js";
import { becomes, findings, launch, long, open, tooWide } from "./browser.js";
import { clean, nasty } from "./nasty.js";
import { sockets } from "./sockets.js";

const secret = "0123456789abcdef0123456789abcdef";
const admin = tokenOf(secret, "boss", "admin"), user = tokenOf(secret, "u7", "user"), helper = tokenOf(secret, "ann", "helper");
const allowed = ["401", "403"];
let server, browser, base, folder, others;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "console-"));
  await writeFile(join(folder, "secret"), secret, { mode: 0o600 });
  const rules = ["admin: admin,read,publish stream:**", "admin: admin,consume,inspect queue:work", "admin: metrics,connections,keys server:*", "helper: connections server:*", "user: read stream:user/{sub}", "user: read stream:{claim.team}", "user: join room:lobby"];
  [server, browser] = await Promise.all([serve("--auth-secret-file", join(folder, "secret"), ...rules.flatMap((rule) => ["--rule", rule])), launch()]);
  base = server.base;
  await v1(base, "POST", "streams/user%2Fu7", {}, admin);
  others = await sockets(browser, base);
});
after(async () => {
  await browser?.close();
  await server?.end();
  await rm(folder, { recursive: true, force: true });
});

/** A page of a user who has signed in. */
async function as(t, token, path, more = [], how = {}) {
  const page = await open(t, browser, base, { ...how, allowed: [...allowed, ...more] });
  await page.addInitScript((value) => sessionStorage.setItem("tidewire.token", value), token);
  await page.goto(`${base}/console/${path}`);
  return page;
}

const rows = (page, label) => page.getByRole("group", { name: label, exact: true }).locator("tbody tr");

test("connections are listed, found, looked at and disconnected", async (t) => {
  await others.connect(user, [{ type: "subscribe", stream: "user/u7" }, { type: "join", room: "lobby" }]);
  await others.connect(admin, [{ type: "subscribe", stream: "user/u7", subscription: "mine" }]);
  const page = await as(t, admin, "connections", ["404"]);
  await page.getByText("2 connections of this server").waitFor();
  assert.deepEqual(await rows(page, "Connections").locator("th").allTextContents(), ["boss", "u7"], "the newest first");
  for (const order of ["Slowest", "Most unsent"]) {
    await page.getByRole("button", { name: order }).click();
    await becomes(() => rows(page, "Connections").count(), 2);
  }
  assert.match(page.url(), /order=unsent/);
  await page.getByLabel("User contains").fill("nobody");
  await page.getByText("No connection has such a user").waitFor();
  await page.getByLabel("User contains").fill("u7");
  await page.getByText("1 of 2 connections of this server").waitFor();
  const row = rows(page, "Connections");
  await becomes(() => row.count(), 1);
  assert.deepEqual((await row.locator("td").allTextContents()).filter((_, i) => i === 4 || i === 6 || i === 7), ["2", "user", "/ws"]);
  await page.reload();
  await row.getByRole("link", { name: "u7" }).click();
  await page.getByRole("heading", { name: "u7" }).waitFor();
  await page.getByRole("region", { name: "Open here" }).getByText("lobby").waitFor();
  await page.getByRole("region", { name: "Claims of its token" }).getByText('"u7"').waitFor();
  assert.ok(!(await page.content()).includes(user), "never the token");
  const rights = page.getByRole("region", { name: "Rights" });
  await rights.getByText("read stream:user/u7").waitFor();
  await rights.getByText("nothing: the token lacks a value").waitFor();
  await page.getByRole("button", { name: "Disconnect", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Disconnect this connection?" });
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(await others.closed(), [], "nothing is done without an answer");
  await page.getByRole("button", { name: "Disconnect", exact: true }).click();
  await dialog.getByRole("button", { name: "Disconnect" }).click();
  await becomes(others.closed, [4401]);
  await page.getByText("the connection has ended").waitFor();
  assert.equal(await page.getByRole("button", { name: /Disconnect/ }).count(), 0);
});

long("all connections of a user end, and its tokens are revoked", async (t) => {
  const guest = tokenOf(secret, "guest", "user");
  await others.connect(guest, [{ type: "join", room: "lobby" }]);
  const before = (await others.closed()).length;
  const page = await as(t, admin, "connections?user=guest", ["404"]);
  await page.getByRole("link", { name: "guest" }).click();
  await page.getByRole("button", { name: "Revoke the tokens of this user" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke the tokens of this user" }).click();
  await becomes(async () => (await others.closed()).slice(before), [4403]);
  await assert.rejects(v1(base, "GET", "streams", undefined, guest), /401/);
  const another = tokenOf(secret, "another", "user");
  await page.goto(`${base}/console/access?show=tokens`);
  await page.getByRole("textbox", { name: "User" }).fill("another");
  await page.getByRole("button", { name: "Revoke", exact: true }).click();
  await page.getByRole("dialog", { name: "Revoke the tokens of another?" }).getByRole("button", { name: "Revoke" }).click();
  await page.getByText("The tokens of another are revoked.").waitFor();
  await assert.rejects(v1(base, "GET", "streams", undefined, another), /401/);
});

long("why something is denied, and which rule would grant it", async (t) => {
  await others.connect(user, [{ type: "join", room: "lobby" }]);
  const page = await as(t, admin, "connections", ["404"]);
  await page.getByText("Why is this denied?").click();
  await page.getByLabel("A user who is connected here").fill("u7");
  await page.getByLabel("Name").fill("orders*");
  await page.getByRole("button", { name: "Explain" }).click();
  const answer = page.locator(".answer");
  await answer.getByText("u7, in the role user, has no rule that grants this.").waitFor();
  await answer.getByRole("button", { name: /Copy/ }).click();
  await becomes(() => page.evaluate(() => navigator.clipboard.readText()), "user: read stream:orders\\*");
  await page.reload();
  await answer.getByText("user: read stream:orders\\*").first().waitFor(); // the question is in the address
  await page.getByLabel("Name").fill("user/u7");
  await page.getByRole("button", { name: "Explain" }).click();
  await answer.getByText("read stream:user/{sub}").waitFor();
  await answer.getByText("of the role user, written in --rule").waitFor();
  await page.getByLabel("A user who is connected here").fill("carol");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("This server has no connection of this user").waitFor();
  await page.getByLabel("A user who is connected here").fill("");
  await page.getByLabel("Claims of a token").fill("x");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("The claims are not a JSON object").waitFor();
  await page.getByLabel("Claims of a token").fill('{"sub":"x","team":"red"}');
  await page.getByLabel("Name").fill("red");
  await page.getByRole("button", { name: "Explain" }).click();
  await answer.getByText("read stream:{claim.team}").waitFor();
  assert.ok(!page.url().includes("team"), "claims are not in the address");
  await page.getByLabel("or a role").fill("admin");
  await page.getByLabel("Kind").selectOption("server");
  await page.getByLabel("Verb").selectOption("profile");
  await page.getByRole("button", { name: "Explain" }).click();
  await answer.getByText("admin: profile server:*").first().waitFor();
});

test("an API key is made, shown once, used and revoked", async (t) => {
  const page = await as(t, admin, "access");
  await page.getByText("There is no API key yet").waitFor();
  await page.getByLabel("Name").fill("shop");
  await page.getByLabel("Rights, one in each line").fill("read stream:**\nconsume queue:jobs");
  await page.getByLabel("Ends after days").fill("x");
  await page.getByRole("button", { name: "Make the key" }).click();
  await page.getByText("The days are a number").waitFor();
  await page.getByLabel("Ends after days").fill("30");
  await page.getByRole("button", { name: "Make the key" }).click();
  await page.getByText("You cannot give \"consume queue:jobs\" to a key").waitFor();
  await page.getByLabel("Rights, one in each line").fill("read stream:**");
  await page.getByRole("button", { name: "Make the key" }).click();
  await page.getByText("Store it now: it is not shown again.").waitFor();
  await page.getByRole("button", { name: "Copy the key" }).click();
  const key = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(key, /^tw_\w{8}_\w{43}$/);
  assert.ok(!page.url().includes("tw_") && !(await page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage }))).includes("tw_"));
  await page.getByRole("button", { name: "I have stored it" }).click();
  const row = rows(page, "API keys").filter({ hasText: "shop" });
  await row.getByText("active").waitFor();
  await row.getByText("by boss").waitFor();
  assert.ok(!(await page.content()).includes(key.slice(12)), "it is not shown again");
  await v1(base, "GET", "streams", undefined, key);
  await page.reload();
  await becomes(async () => /^\d{4}-/.test(await row.locator("td").nth(5).textContent()), true);
  await row.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await page.getByText("of shop is revoked.").waitFor();
  await row.waitFor({ state: "detached" });
  await page.getByRole("button", { name: /^Show ended keys/ }).click();
  await page.waitForURL(/ended=1/);
  await row.getByText("revoked", { exact: true }).waitFor();
  await assert.rejects(v1(base, "GET", "streams", undefined, key), /401/);
  await page.getByRole("button", { name: "Recent acts" }).click();
  await rows(page, "Recent acts").filter({ hasText: "create key" }).getByText("shop").waitFor();
  assert.ok(!(await page.content()).includes(key.slice(12)));
});

long("rules, denials, and what a helper may not", async (t) => {
  await assert.rejects(v1(base, "GET", "streams/secret", undefined, user));
  await assert.rejects(v1(base, "GET", "streams/secret", undefined, user));
  const page = await as(t, helper, "access", ["404"]);
  await page.getByText("It needs the right “keys server:*”.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Make the key" }).count(), 0);
  await page.getByRole("button", { name: "Rules" }).click();
  await rows(page, "Rules").filter({ hasText: "read stream:user/{sub}" }).getByText("--rule").waitFor();
  await page.getByRole("button", { name: "Recent denials" }).click();
  const row = rows(page, "Recent denials").filter({ hasText: "read stream:secret" });
  await becomes(() => row.locator("td").nth(2).textContent(), "2");
  await others.connect(user, [{ type: "join", room: "lobby" }]);
  await row.getByRole("link").click();
  await page.locator(".answer").getByText("user: read stream:secret").first().waitFor();
  await assert.rejects(v1(base, "GET", "streams/secret", undefined, tokenOf(secret, "away", "user")));
  await page.goto(`${base}/console/access?show=denials`);
  await rows(page, "Recent denials").filter({ hasText: "away" }).getByRole("link").click();
  await page.locator(".answer").getByText("away has no connection here. For a token in the role user").waitFor();
  await page.locator(".answer").getByText("user: read stream:secret").first().waitFor();
  const plain = await as(t, user, "connections");
  await plain.getByText("It needs the right “connections server:*”.").waitFor();
  await plain.goto(`${base}/console/access?show=tokens`);
  await plain.getByText("You may not revoke tokens").waitFor();
  assert.equal(await plain.getByRole("textbox", { name: "User" }).count(), 0);
});

long("no name, claim, room or reason is markup, dark and light, wide and narrow", async (t) => {
  const short = nasty.filter((text) => text.length < 60);
  await v1(base, "POST", "queues/work", {}, admin);
  for (const text of short) {
    await v1(base, "POST", "keys", { name: text, allow: [`read stream:${text.replace(/[\\*{}#]/g, "\\$&")}`] }, admin);
    await assert.rejects(v1(base, "GET", `streams/${encodeURIComponent(text)}`, undefined, tokenOf(secret, text, text)));
    await others.connect(tokenOf(secret, text, "user"), [{ type: "join", room: "lobby" }]);
    await others.connect(tokenOf(secret, text, "admin"), [{ type: "subscribe", stream: "user/u7", subscription: text }, { type: "consume", queue: "work" }]);
  }
  for (const scheme of ["light", "dark"]) {
    const page = await as(t, admin, "connections", ["404", "400"], { scheme });
    const look = async (where) => {
      await clean(page, where);
      assert.deepEqual(await findings(page), [], `axe-core: ${where}`);
      for (const width of [1280, 800, 400]) {
        await page.setViewportSize({ width, height: 900 });
        assert.equal(await tooWide(page), false, `${where} is too wide for ${width} pixels`);
      }
    };
    for (const text of short) await page.getByRole("link", { name: text, exact: true }).first().waitFor();
    await look("connections");
    await page.goto(`${base}/console/queues/work?show=consumers`);
    for (const text of short) await page.getByRole("link", { name: text, exact: true }).first().waitFor();
    await look("consumers");
    const { connections } = await v1(base, "GET", "connections?user=onload", undefined, admin);
    await page.goto(`${base}/console/connections/${connections[0].connection}?verb=read&kind=stream&name=${encodeURIComponent(short[0])}`);
    await page.locator(".answer p").first().waitFor();
    await page.getByRole("region", { name: "Open here" }).getByText(short.find((text) => text.includes("onload"))).waitFor();
    await look("one");
    await page.getByRole("button", { name: "Revoke the tokens of this user" }).click();
    await page.getByRole("dialog").waitFor();
    await look("a question");
    for (const show of ["keys", "rules", "denials", "acts", "tokens"]) {
      await page.goto(`${base}/console/access?show=${show}`);
      await page.locator("main table, main section").first().waitFor();
      await look(show);
    }
    for (const text of short) {
      const value = encodeURIComponent(text);
      await page.goto(`${base}/console/connections?${["user", "order", "as", "role", "verb", "kind", "name", "tags"].map((name) => `${name}=${value}`).join("&")}`);
      await page.getByText("Why is this denied?").waitFor();
      await clean(page, `an address with ${text}`);
    }
  }
});

long("a server in open mode", async (t) => {
  const free = await serve();
  const page = await open(t, browser, free.base, { allowed: ["404", "ERR_INTERNET_DISCONNECTED"] });
  t.after(free.end); // after the page has gone
  await page.goto(`${free.base}/console/connections`);
  await page.getByText("There is no WebSocket connection").waitFor();
  const { connect, closed } = await sockets(browser, free.base);
  await connect("", [{ type: "join", room: "a" }]);
  await page.reload();
  await rows(page, "Connections").getByRole("link").click();
  await page.getByText("not known: no token").waitFor();
  await page.getByText("Why is this denied?").click();
  await page.getByLabel("Name").fill("x");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("everybody may do everything").waitFor();
  await page.getByRole("button", { name: "Disconnect", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Disconnect" }).click();
  await becomes(closed, [1012]);
  await page.goto(`${free.base}/console/access`);
  await page.getByText("This server is in open mode").waitFor();
  await page.getByRole("button", { name: "Recent acts" }).click();
  await rows(page, "Recent acts").getByText("disconnect connection").waitFor();
  await page.context().setOffline(true);
  await page.getByText("This is not up to date").waitFor();
  await page.context().setOffline(false);
  await page.getByText("This is not up to date").waitFor({ state: "detached" });
});
