// The screen of rooms, of a server in open mode.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
import { join, log, say, users } from "./acts.js";
import { becomes, launch, open } from "./browser.js";

let server, browser, base;
before(async () => {
  [server, browser] = await Promise.all([serve("--stored-rooms", "kept*"), launch()]);
  base = server.base;
});
after(async () => {
  await browser?.close();
  await server?.end();
});

test("chats of others are counted, in the list", async (t) => {
  const page = await open(t, browser, base);
  const talker = await open(t, browser, base);
  await join(talker, base, "busy", "");
  await page.goto(`${base}/console/rooms?find=busy`);
  await page.getByRole("link", { name: "busy" }).waitFor();
  for (let i = 0; i < 8; i++) await v1(base, "POST", "rooms/busy/chats", { text: `${i}` });
  await becomes(async () => Number(await page.getByRole("row").filter({ hasText: "busy" }).getByRole("cell").nth(1).textContent()) > 0, true);
});

test("who chats too fast is told when the next chat may be sent", async (t) => {
  const page = await open(t, browser, base);
  await join(page, base, "public", "ann");
  await say(page, "again", "x");
  await page.getByText("How often is a whole number from 0 to 100.").waitFor();
  await say(page, "again", "30");
  await page.getByText(/^Too fast: the server has refused \d+ chats\. The next may be sent in \d/).waitFor();
  await page.getByText("You may send the next chat now.").waitFor();
  await say(page, "once more");
  await log(page).getByText("once more").waitFor();
  await becomes(() => page.getByText("Too fast").count(), 0);
});

test("a user is removed from a room, on all its connections, and can come back", async (t) => {
  const [boss, ann] = [await open(t, browser, base), await open(t, browser, base)];
  await join(ann, base, "den", "ann");
  await join(boss, base, "den", "boss");
  await boss.getByRole("button", { name: "Remove ann" }).click();
  const dialog = boss.getByRole("dialog", { name: "Remove this user from the room?" });
  await dialog.getByText("It is no ban").waitFor();
  await boss.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual((await v1(base, "GET", "rooms/den/members")).members, ["ann", "boss"], "nothing is done without an answer");
  await boss.getByRole("button", { name: "Remove ann" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await boss.getByText("ann was removed: 1 connection.").waitFor();
  await log(boss).getByText("ann has left.").waitFor();
  await becomes(() => users(boss), ["boss"]);
  await ann.getByText("You were removed from this room").waitFor();
  assert.equal(await ann.getByLabel("Say").count(), 0);
  await ann.getByRole("button", { name: "Join" }).click();
  await ann.getByText("You are in the room.").waitFor();
  await becomes(() => users(boss), ["ann", "boss"]);
  await boss.route("**/kick", (route) => route.fulfill({ json: { connections: 0, silent: ["0000000000000001"] } }));
  await boss.getByRole("button", { name: "Remove ann" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await boss.getByText("1 server did not answer: the user may be in the room there.").waitFor();
});

test("the history of a stored room is read page by page, backwards", async (t) => {
  for (let i = 1; i <= 120; i++) await v1(base, "POST", "rooms/kept-1/chats", { user: "till", text: `chat ${i}.` });
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/rooms/kept-1`);
  await page.getByRole("button", { name: "History" }).click();
  await page.waitForURL(/show=history$/);
  const shown = () => page.getByRole("group", { name: "History" }).getByRole("listitem").locator("span").allTextContents();
  await becomes(async () => [(await shown()).length, (await shown()).at(-1)], [50, "chat 120."]);
  await page.getByRole("button", { name: "Older" }).click();
  await page.waitForURL(/before=/);
  await becomes(async () => [(await shown())[0], (await shown()).at(-1)], ["chat 21.", "chat 70."]);
  await page.getByRole("button", { name: "Older" }).click();
  await becomes(async () => [(await shown())[0], (await shown()).at(-1)], ["chat 1.", "chat 20."]);
  await page.reload();
  await becomes(async () => (await shown())[0], "chat 1.");
  await page.getByRole("button", { name: "Newest" }).click();
  await becomes(async () => (await shown()).at(-1), "chat 120.");
  await page.getByRole("button", { name: "Live" }).click();
  await page.getByRole("button", { name: "Join" }).click();
  await log(page).getByText("chat 101.").waitFor();
  await v1(base, "POST", "rooms/kept-1/chats", { text: "a new one" });
  await log(page).getByText("a new one").waitFor();
});

test("gaps are shown, and a server that is away", async (t) => {
  const page = await open(t, browser, base, { allowed: ["ERR_INTERNET_DISCONNECTED", "WebSocket"] });
  let cut;
  await page.routeWebSocket(/\/ws$/, (socket) => {
    const to = socket.connectToServer();
    cut = () => { socket.close(); to.close(); };
    to.onMessage((message) => {
      socket.send(message);
      if (String(message).includes("tell me")) socket.send(JSON.stringify({ type: "gap", room: "holes", missed: 1234 }));
    });
  });
  await join(page, base, "holes", "ann");
  await v1(base, "POST", "rooms/holes/chats", { text: "tell me" });
  await log(page).getByText("1,234 chats are missing here.").waitFor();
  cut();
  await log(page).getByText("Chats may be missing here").waitFor();
  await v1(base, "POST", "rooms/holes/chats", { text: "after it" });
  await log(page).getByText("after it").waitFor();
  await page.goto(`${base}/console/rooms`);
  await page.getByRole("link", { name: "Overview" }).waitFor();
  await page.context().setOffline(true);
  await page.getByText("This is not up to date").waitFor();
  await page.context().setOffline(false);
  await page.getByText("This is not up to date").waitFor({ state: "detached" });
});

test("what is below the conversation stays in its place while the first chats come", async (t) => {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/rooms/still`);
  await page.getByRole("button", { name: "Join" }).waitFor();
  const tops = await page.evaluate(async () => {
    const top = () => document.querySelector("form[aria-label=Chat]")?.getBoundingClientRect().top;
    const until = async (is) => { while (!is()) await new Promise(requestAnimationFrame); };
    document.querySelector("form[aria-label=Join] button").click();
    await until(top);
    const first = top();
    await until(() => document.querySelector("[role=log] li"));
    return [first, top()];
  });
  assert.equal(tops[1], tops[0]);
});
