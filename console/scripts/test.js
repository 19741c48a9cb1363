// Runs the tests: those of parts, then those in a browser, with a real server. The second need bin/tidewire, and Chromium at
// CHROMIUM or /usr/bin/chromium: one flow for each screen, and with TIDEWIRE_TEST_LONG all flows.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const browser = process.env.CHROMIUM ?? "/usr/bin/chromium";
const isTest = (name) => name.endsWith(".test.js") && (process.env.TIDEWIRE_TEST_LONG || !name.endsWith(".long.test.js"));
const tests = (folder) => readdirSync(`${root}${folder}`).filter(isTest).map((name) => `${folder}/${name}`);

function run(files, ...flags) {
  return spawnSync(process.execPath, ["--test", "--test-reporter=spec", ...flags, ...files], { cwd: root, stdio: "inherit", timeout: 1_200_000 }).status ?? 1;
}

const given = process.argv.slice(2);
let status = run(given.length ? given : tests("test"));
if (!status && !given.length) {
  if (existsSync(browser)) {
    const slowest = "look.long.test.js"; // begins first: at the end nothing waits for it
    status = run(tests("test/browser").sort((a, b) => b.endsWith(slowest) - a.endsWith(slowest)), "--test-concurrency=2");
  } else {
    console.log(`console: not tested in a browser: there is none at ${browser}. Install Debian's package chromium, or set CHROMIUM`);
    status = process.env.CI ? 1 : 0;
  }
}
process.exit(status);
