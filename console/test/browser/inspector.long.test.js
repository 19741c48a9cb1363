// The inspector, of a server in open mode.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
import { connected, types } from "./acts.js";
import { becomes, launch, open } from "./browser.js";

let server, browser, base;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  base = server.base;
  await v1(base, "POST", "streams/orders");
  await v1(base, "POST", "queues/mail", {});
});
after(async () => {
  await browser?.close();
  await server?.end();
});

const send = (page) => page.getByRole("button", { name: "Send", exact: true });

test("every template is a message that the server takes", async (t) => {
  const page = await connected(t, browser, base);
  await becomes(() => page.getByLabel("Template").locator("option").count().then((n) => n > 20), true);
  const names = (await page.getByLabel("Template").locator("option").evaluateAll((all) => all.map(({ value }) => value))).filter(Boolean);
  const { components } = await (await fetch(`${base}/v1/asyncapi.json`)).json();
  const requests = Object.values(components.messages).filter(({ payload }) => payload.properties?.type?.const && payload.additionalProperties !== undefined).map(({ name }) => name).filter((name) => !/^server\.|\.ok$/.test(name));
  const labels = await page.getByLabel("Template").locator("option").allTextContents();
  for (const request of requests) assert.ok(labels.some((label) => label.startsWith(`${request}: `)), `a template of ${request}`);
  let sent = 0;
  for (const name of names) {
    await page.getByLabel("Template").selectOption(name);
    await becomes(async () => (await page.getByLabel("Frame, as it is sent").inputValue()).includes('"type"'), true);
    await send(page).click();
    await becomes(async () => (await page.locator("table.frames td.way").allTextContents()).filter((way) => way === "sent").length, ++sent);
  }
  await page.getByRole("button", { name: "Received" }).click();
  await page.getByLabel("Contains").fill('"error"');
  await page.waitForTimeout(500);
  const errors = await page.locator("table.frames td.preview").allTextContents();
  const codes = errors.map((text) => JSON.parse(text.replace(/ …$/, '"}')).code);
  for (const code of codes) assert.ok(["lease_lost", "not_consuming", "not_joined", "not_subscribed", "not_found", "conflict"].includes(code), code);
});

test("the log is filtered, paused and cleared", async (t) => {
  const page = await connected(t, browser, base);
  await becomes(() => types(page), ["hello"]);
  const say = async (text) => {
    await page.getByLabel("Frame, as it is sent").fill(text);
    await send(page).click();
  };
  await say('{"type":"subscribe","stream":"orders"}');
  await becomes(() => types(page), ["subscribe", "hello"]);
  await page.getByRole("button", { name: "Pause" }).click();
  await v1(base, "POST", "streams/orders/messages", { messages: [{ payload: "one" }, { payload: "two" }] });
  await page.getByText(/Paused, [34] frames until now/).waitFor();
  assert.deepEqual(await types(page), ["subscribe", "hello"]);
  await page.getByRole("button", { name: "Go on" }).click();
  await becomes(async () => (await types(page)).filter((type) => type === "message").length, 2);
  await page.getByLabel("Contains").fill("two");
  await page.waitForURL(/filter=two/);
  await becomes(() => types(page), ["message"]);
  await page.getByRole("button", { name: "Sent", exact: true }).click();
  await page.getByText("No frame matches").waitFor();
  await page.getByRole("button", { name: "Show all" }).click();
  await becomes(async () => (await types(page)).length > 3, true);
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByText("There is no frame yet").waitFor();
});
