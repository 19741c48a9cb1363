// Names with letters that mean something in an address, on the screens of all things that have names.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serve, v1 } from "../server.js";
import { becomes, launch, open } from "./browser.js";

const names = [".", "..", "~.", "%2F", "a/../b", "a//b/", "two  spaces", "?x=1#y", "100%", "🎉👩‍👩‍👧", "שלום עולם", "+&;,", "\\", "é"];
let server, browser, base;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  base = server.base;
});
after(async () => {
  await browser?.close();
  await server?.end();
});

/** Makes something of any name, also of one that fetch would take for a step. */
const make = (kind, name) => v1(base, "POST", `${kind}/${/^~*\.\.?$/.test(name) ? "~" : ""}${encodeURIComponent(name)}`, {});

for (const [kind, title] of [["streams", "Streams"], ["queues", "Queues"]]) {
  test(`${title}: each name opens from the list, from its address, and with the buttons of the browser`, async (t) => {
    for (const name of names) await make(kind, name);
    const page = await open(t, browser, base);
    const list = `${base}/console/${kind}`;
    await page.goto(list);
    for (const name of names) {
      const link = page.locator("table a").filter({ has: page.locator(`xpath=self::*[.='${name}']`) }).first();
      await link.click();
      const heading = () => page.locator("h1").first().evaluate((h) => h.textContent);
      await becomes(async () => (await heading()).includes(name), true);
      const at = page.url();
      assert.notEqual(at, list);
      await page.goBack();
      await link.waitFor();
      await page.goForward();
      await becomes(async () => (await heading()).includes(name), true);
      assert.equal(page.url(), at);
      await page.reload();
      await becomes(async () => (await heading()).includes(name), true);
      assert.equal(await page.getByText(/not found|There is no (stream|queue)/).count(), 0, name);
      await page.goto(list);
    }
  });
}
