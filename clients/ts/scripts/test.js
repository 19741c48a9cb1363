// Runs all tests, and those of the client again with the minified file. Those against a real server need TIDEWIRE_URL, such as http://localhost:8080.
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const given = process.argv.slice(2);
const files = given.length ? given : readdirSync(`${root}test`).filter((name) => name.endsWith(".test.js")).map((name) => `test/${name}`);
const client = files.filter((file) => readFileSync(`${root}${file}`, "utf8").includes('"#client"'));

/** Runs files, and returns how that ended. */
function run(flags, which) {
  const { status } = spawnSync(process.execPath, [...flags, "--test", ...which], { cwd: root, stdio: "inherit", timeout: 900_000 });
  return status ?? 1;
}

const status = run([], files) || (client.length && run(["--conditions=minified"], client));
process.exit(status);
