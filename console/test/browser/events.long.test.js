// The screen of events, of a server in open mode.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
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

const rows = (page) => page.locator("table.events tbody tr");
const positions = (page) => rows(page).locator("th").allTextContents();
const url = (page) => decodeURIComponent(new URL(page.url()).search);
const query = (...items) => encodeURIComponent(JSON.stringify(items));
const append = (store, events) => v1(base, "POST", "events", { store, events });

/** A store with so many events: one course for each ten, and students. */
async function filled(store, n) {
  await v1(base, "POST", `events/stores/${store}`);
  await append(store, Array.from({ length: n }, (_, i) => (i % 10 ? { type: "Enrolled", tags: [`course:${Math.floor(i / 10)}`, `student:${i % 7}`], data: { i } } : { type: "Offered", tags: [`course:${i / 10}`] })));
}

test("a query is made of chips, with completion, and is in the address", async (t) => {
  await filled("courses", 120);
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/events/courses`);
  await page.getByText("120 events match").waitFor();
  const types = page.getByLabel("Types, one of");
  const tags = page.getByLabel("Tags, all of");
  const proposed = (input) => input.first().evaluate((field) => [...field.list.options].map(({ value }) => value));
  await becomes(() => proposed(types), ["Enrolled", "Offered"]);
  await types.fill("Off");
  await becomes(() => proposed(types), ["Offered"]);
  await types.fill("Enrolled");
  await types.press("Enter");
  await page.getByText("108 events match").waitFor();
  await becomes(() => proposed(types), ["Offered"]);
  await becomes(async () => (await proposed(tags)).includes("student:3"), true);
  await tags.fill("course:3");
  await tags.press("Enter");
  await page.getByText("9 events match").waitFor();
  await becomes(() => positions(page), ["40", "39", "38", "37", "36", "35", "34", "33", "32"]);
  await page.getByRole("button", { name: "Or another item" }).click();
  await page.getByLabel("Types, one of").nth(1).fill("Offered");
  await page.getByLabel("Types, one of").nth(1).press("Enter");
  await page.getByText("21 events match").waitFor();
  await page.getByText("Item 1: 9 match").waitFor();
  await page.getByText("or item 2: 12 match").waitFor();
  assert.equal(url(page).slice(3), JSON.stringify([{ types: ["Enrolled"], tags: ["course:3"] }, { types: ["Offered"] }]));
  await append("courses", [{ type: "Offered", tags: ["course:99"] }, { type: "Other" }]);
  await page.getByText("22 events match").waitFor();
  await page.getByText("or item 2: 13 match").waitFor();
  await becomes(async () => (await positions(page))[0], "121");
  await page.getByRole("button", { name: "Remove the type Enrolled" }).click();
  await page.getByText("22 events match").waitFor();
  await page.getByText("Item 1: 10 match").waitFor();
  await page.getByRole("button", { name: "Remove item 2" }).click();
  await page.getByText("10 events match").waitFor();
  await page.goBack();
  await page.getByText("22 events match").waitFor();
  await page.getByRole("button", { name: "Show all events" }).click();
  await page.getByText("122 events match").waitFor();
});

test("pages, as of a position, and an event with all that shares its tags", async (t) => {
  await filled("pages", 120);
  const page = await open(t, browser, base, { allowed: ["410"] });
  await page.goto(`${base}/console/events/pages`);
  const ends = async () => { const all = await positions(page); return [all[0], all.at(-1)]; };
  await becomes(ends, ["120", "71"]);
  await page.getByRole("button", { name: "Older" }).click();
  await becomes(ends, ["70", "21"]);
  await page.getByRole("button", { name: "Older" }).click();
  await becomes(ends, ["20", "1"]);
  assert.equal(await page.getByRole("button", { name: "Older" }).getAttribute("aria-disabled"), "true");
  await page.getByRole("button", { name: "Newer" }).click();
  await becomes(ends, ["70", "21"]);
  await page.getByRole("button", { name: "Oldest" }).click();
  await becomes(ends, ["50", "1"]);
  await page.getByLabel("As of position").fill("x");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page.getByText("A position is a whole number").waitFor();
  await page.getByLabel("As of position").fill("1,5");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await becomes(ends, ["15", "1"]);
  await page.getByRole("button", { name: "14", exact: true }).click();
  await page.getByRole("link", { name: "student:6" }).click();
  await page.waitForURL(/q=/);
  await page.getByRole("heading", { name: "Event 14" }).waitFor();
  await becomes(async () => (await positions(page)).every((p) => (p - 1) % 7 === 6), true);
  await page.getByRole("button", { name: "As of this position" }).click();
  await becomes(() => positions(page), ["14", "7"]);
  await page.getByRole("button", { name: "Close the event" }).click();
  await page.getByRole("heading", { name: "Event 14" }).waitFor({ state: "detached" });
  await page.goto(`${base}/console/events/pages?open=500`);
  await page.getByText("No event at this position matches the query").waitFor();
  await page.goto(`${base}/console/events/pages?q=${query({ tags: ["none"] })}`);
  await page.getByText("No event here matches").waitFor();
});

test("a query is followed, paused, and goes on without a loss", async (t) => {
  await filled("followed", 20);
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/events/followed?q=${query({ tags: ["course:9"] })}`);
  await page.getByRole("button", { name: "Follow live" }).click();
  await page.getByText("Live", { exact: true }).waitFor();
  await append("followed", [{ type: "A", tags: ["course:9"], data: { n: 1 } }, { type: "A", tags: ["course:8"] }]);
  await becomes(() => positions(page), ["21"]);
  await page.getByRole("button", { name: "21", exact: true }).click();
  await page.getByText("Paused").waitFor();
  await append("followed", Array.from({ length: 150 }, (_, n) => ({ type: "B", tags: ["course:9"], data: n })));
  await page.getByText("151 events match").waitFor();
  assert.deepEqual(await positions(page), ["21"]);
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByText("151 events,").waitFor();
  await becomes(async () => (await positions(page)).length, 100);
  assert.equal((await positions(page))[0], "172");
});

test("the query as code", async (t) => {
  await filled("coded", 3);
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/events/coded?q=${query({ types: ["Offered"], tags: ["course:0"] })}`);
  for (const [form, text] of [["JSON", '"types": ['], ["curl", "/v1/events/query"], ["TypeScript", "for await"], ["Python", 'tidewire.types("Offered").tagged("course:0")'], ["Go", "[]tidewire.Item"]]) {
    await page.getByRole("button", { name: form, exact: true }).last().click();
    await page.locator(".command pre").filter({ hasText: text }).waitFor();
  }
  await page.getByRole("button", { name: "Copy the program" }).click();
  assert.ok((await page.evaluate(() => navigator.clipboard.readText())).includes("[]tidewire.Item"));
});

test("a store that is not there, one that is large, and a server that is away", async (t) => {
  await filled("away", 2);
  const page = await open(t, browser, base, { allowed: ["404", "ERR_INTERNET_DISCONNECTED"] });
  await page.goto(`${base}/console/events/missing`);
  await page.getByText("The events could not be read").waitFor();
  await page.route("**/v1/events/query", async (route) => {
    const answer = await (await route.fetch()).json();
    for (const event of answer.events) event.position += 2_000_000;
    await route.fulfill({ json: answer });
  });
  await page.goto(`${base}/console/events/away`);
  await page.getByRole("button", { name: "Count the events that match" }).waitFor();
  await page.unrouteAll({ behavior: "wait" }); // unroute would answer requests that the handler is about to answer
  await page.getByRole("button", { name: "Count the events that match" }).click();
  await page.getByText("2 events match").waitFor();
  await page.context().setOffline(true);
  await page.getByText("No answer from the server").waitFor();
  await page.context().setOffline(false);
  await append("away", [{ type: "A" }]);
  await page.getByText("3 events match").waitFor();
});
