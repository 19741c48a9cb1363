// The screen of benchmarks, of a server in open mode that listens on this machine alone.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { result, write } from "../results.js";
import { serve, v1 } from "../server.js";
import { becomes, findings, launch, open } from "./browser.js";

let server, browser, base, folder;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "results-"));
  await chmod(folder, 0o755);
  [server, browser] = await Promise.all([serve("--results", join(folder, "results")), launch()]);
  base = server.base;
});
after(async () => {
  await browser?.close();
  await server?.end();
  await rm(folder, { recursive: true, force: true });
});

const row = (page, name) => page.getByRole("row").filter({ has: page.getByLabel(`Compare ${name}`, { exact: true }) });

test("a report runs in an origin of its own", async (t) => {
  await write(join(folder, "results"), { before: result("ingest", 1000), nasty: result("<img src=x onerror='globalThis.xss=1'>", 1000) });
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/bench`);
  const opened = page.context().waitForEvent("page");
  await row(page, "before").getByRole("button", { name: "Report of before" }).click();
  const report = await opened;
  const wrong = [];
  report.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
  await report.getByRole("heading", { name: "Benchmark: ingest" }).waitFor();
  await report.getByText("How fast").first().waitFor();
  await report.getByLabel(/^senders/).fill("1000000000"); // its script works
  await report.getByText("too slow").waitFor();
  assert.equal(await report.evaluate(() => globalThis.origin), "null");
  assert.equal(await report.evaluate(() => { try { return sessionStorage.length; } catch { return "refused"; } }), "refused");
  assert.deepEqual(await findings(report), [], "axe-core");
  assert.deepEqual(wrong, []);
  const { path } = await v1(base, "POST", "bench/reports", { results: ["nasty"] });
  await report.goto(base + path);
  await report.getByRole("heading", { name: "Benchmark: <img" }).waitFor();
  assert.equal(await report.evaluate(() => globalThis.xss), undefined);
  const gone = await fetch(`${base}/console/report/nothing`);
  assert.equal(gone.status, 404);
});

test("a quick benchmark is started, watched and stopped", async (t) => {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/bench?scenario=queue`);
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("heading", { name: "queue is running" }).waitFor();
  await becomes(() => page.getByRole("button", { name: "Start", exact: true }).getAttribute("aria-disabled"), "true");
  await page.getByText("round 1: lease").waitFor({ timeout: 60_000 });
  await page.getByText(/Step 1 of 3/).waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByRole("heading", { name: "queue was stopped" }).waitFor({ timeout: 30_000 });

  await page.getByLabel("Scenario").selectOption("echo");
  await page.getByText("It measures cost of a round trip.").waitFor();
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("heading", { name: "echo has ended" }).waitFor({ timeout: 60_000 });
  await page.getByRole("region", { name: "echo has ended" }).getByRole("button", { name: "Report" }).waitFor();
  await page.getByRole("rowheader", { name: /^echo-/ }).waitFor();
  const { run } = await v1(base, "GET", "bench/run");
  assert.ok(existsSync(join(folder, "results", `${run.results[0]}.json`)));
});
