import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { compile, root, run } from "./compile.js";

test("the packed package is imported and type-checked in an empty folder", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "tidewire-"));
  t.after(() => rm(folder, { recursive: true }));
  const { stdout } = await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], { cwd: root });
  const [{ filename, files }] = JSON.parse(stdout);
  const kinds = new Set(files.map(({ path }) => path.replace(/^dist\/.*?(\.d\.ts|\.min\.js|\.js)$/, "dist/*$1")));
  assert.deepEqual([...kinds].sort(), ["README.md", "dist/*.d.ts", "dist/*.js", "dist/*.min.js", "package.json"]);

  await writeFile(join(folder, "package.json"), '{"type":"module","private":true}');
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${filename}`], { cwd: folder });
  assert.deepEqual((await readdir(join(folder, "node_modules"))).filter((name) => !name.startsWith(".")), ["tidewire"]);

  await writeFile(join(folder, "program.mjs"), 'import * as all from "tidewire"; console.log(Object.keys(all).join());');
  const imported = await run(process.execPath, ["program.mjs"], { cwd: folder });
  assert.match(imported.stdout, /Conflict.*connect.*tagged/);

  // A program without types of Node, and with an older library of the language.
  await writeFile(join(folder, "program.mts"), 'import { connect } from "tidewire";\nexport const done: Promise<void> = connect("ws://x/ws").close();\n');
  await compile(["program.mts"], folder, ["--lib", "es2022,dom", "--typeRoots", "none"]);
});
