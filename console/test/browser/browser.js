// Pages of a real browser, which fail a test if something is wrong that the test does not look at.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** A flow that only long runs have: those of all runs are one for each screen. */
export const long = process.env.TIDEWIRE_TEST_LONG ? test : test.skip;

/** Chromium ends its requests when a network interface comes or goes, and other tests make networks. */
const networkChanged = "net::ERR_NETWORK_CHANGED";

/** Starts the browser. */
export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

/** A page. At the end of the test there must have been no request to another host, no error, and nothing that the policy has stopped. */
export async function open(t, browser, base, { width = 1280, height = 900, scheme = "light", allowed = [] } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, timezoneId: "UTC", locale: "en-GB" });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: base });
  const page = await context.newPage();
  const wrong = [];
  const foreign = [];
  page.on("request", (request) => new URL(request.url()).origin !== base && foreign.push(request.url()));
  page.on("websocket", (socket) => new URL(socket.url()).host !== new URL(base).host && foreign.push(socket.url()));
  page.on("pageerror", (error) => wrong.push(error.message));
  page.on("console", (message) => message.type() === "error" && ![networkChanged, ...allowed].some((text) => message.text().includes(text)) && wrong.push(message.text()));
  t.after(async () => {
    const xss = await page.evaluate(() => globalThis.xss).catch(() => undefined);
    for (const each of context.pages()) await each.unrouteAll({ behavior: "ignoreErrors" }); // a handler may be in the middle of a request
    await context.close();
    assert.deepEqual(foreign, [], "requests to other hosts");
    assert.deepEqual(wrong, [], "errors in the page");
    assert.equal(xss, undefined, "a text of a message ran as a script");
  });
  const goto = page.goto.bind(page);
  page.goto = (...where) => goto(...where).catch((error) => (error.message.includes(networkChanged) ? goto(...where) : Promise.reject(error)));
  page.setDefaultTimeout(15_000);
  return page;
}

/** The findings of axe-core, in a few words each: those of all rules, or of some. */
export async function findings(page, ...rules) {
  await page.evaluate(axe);
  const options = { resultTypes: ["violations"], ...(rules.length && { runOnly: rules }) };
  const { violations } = await page.evaluate((how) => globalThis.axe.run(document, how), options);
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`);
}

/** Fails unless everybody can use what the page shows: axe-core finds nothing, in light and in dark, and nothing is cut off at any width. */
export async function usable(page) {
  for (const [scheme, paper, rules] of [["dark", "rgb(18, 22, 27)", ["color-contrast"]], ["light", "rgb(255, 255, 255)", []]]) {
    await page.emulateMedia({ colorScheme: scheme });
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), paper);
    assert.deepEqual(await findings(page, ...rules), [], `axe-core, ${scheme}`);
  }
  for (const width of [800, 400, 1280]) {
    await page.setViewportSize({ width, height: 900 });
    assert.equal(await tooWide(page), false, `too wide for ${width} pixels`);
  }
}

/** Whether the page is wider than its window. */
export const tooWide = (page) => page.evaluate(() => document.documentElement.scrollWidth > innerWidth);

/** Waits until what is read equals what is wanted: a page shows some things a moment after its address. */
export async function becomes(read, want) {
  for (const end = Date.now() + 20_000; ; ) {
    const got = await read();
    try {
      return assert.deepEqual(got, want);
    } catch (error) {
      if (Date.now() > end) throw error;
    }
    await new Promise((next) => setTimeout(next, 50));
  }
}
