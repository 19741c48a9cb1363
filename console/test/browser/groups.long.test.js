// Groups of a stream, and what it keeps.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
import { becomes, launch, open } from "./browser.js";

let server, browser, base;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  base = server.base;
  await v1(base, "POST", "streams/orders", {});
  for (let i = 0; i < 2; i++) await v1(base, "POST", "streams/orders/messages", { messages: Array.from({ length: 1000 }, () => ({ payload: "x" })) });
  for (const [group, position] of [["far", 1900], ["near", 10]]) await v1(base, "POST", `streams/orders/groups/${group}/commit`, { position });
});
after(async () => {
  await browser?.close();
  await server?.end();
});

const row = (page, group) => page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: group, exact: true }) });

test("what a stream keeps is changed, and errors are shown", async (t) => {
  const page = await open(t, browser, base, { allowed: ["503"] });
  await page.goto(`${base}/console/streams/orders`);
  await page.getByRole("button", { name: "Change …" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("It keeps everything.").waitFor();
  await dialog.getByLabel("Not older than", { exact: true }).fill("2");
  await dialog.getByLabel("Unit of: Not older than").selectOption("days");
  await dialog.getByText("Messages may be removed for ever, within seconds.").waitFor();
  await dialog.getByLabel("keep what a group has not read").check();
  await dialog.getByLabel("To go on, type the name").fill("orders");
  await dialog.getByRole("button", { name: "Change" }).click();
  await page.getByText("2 days, and what a group has not read").waitFor();
  assert.deepEqual(await v1(base, "GET", "streams/orders/retention"), { max_age_ms: 172_800_000, max_bytes: 0, consumed: true });
  await page.getByRole("button", { name: "Change …" }).click();
  await becomes(() => dialog.getByLabel("Not older than", { exact: true }).inputValue(), "2");
  await dialog.getByLabel("Not older than", { exact: true }).fill("x");
  await dialog.getByRole("button", { name: "Change" }).click();
  await dialog.getByText("A limit is a number, or empty.").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  for (const what of ["groups?*", "retention"]) await page.route(`**/orders/${what}`, (route) => route.fulfill({ status: 503, json: { error: { code: "unavailable", message: "not now" } } }));
  await page.reload();
  await page.getByText("The groups could not be listed").waitFor();
  await page.getByText("not known: Not now.").waitFor();
});
