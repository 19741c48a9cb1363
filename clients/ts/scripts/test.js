// Runs all tests. Those against a real server need TIDEWIRE_URL, such as http://localhost:8080.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const files = process.argv.slice(2);
const all = readdirSync(`${root}test`).filter((name) => name.endsWith(".test.js")).map((name) => `test/${name}`);
const { status } = spawnSync(process.execPath, ["--test", ...(files.length ? files : all)], { cwd: root, stdio: "inherit", timeout: 120_000 });
process.exit(status ?? 1);
