// The code of README.md is one program: it is compiled, and run against the server at TIDEWIRE_URL.
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { compile, root, run } from "./compile.js";
import ts from "typescript";

const url = process.env.TIDEWIRE_URL;

test("the code of the README compiles and runs", async (t) => {
  const folder = await mkdtemp(`${root}test/readme-`);
  t.after(() => rm(folder, { recursive: true }));
  const text = await readFile(`${root}README.md`, "utf8");
  const blocks = [...text.matchAll(/^```ts( run)?\n([\s\S]*?)^```/gm)];
  await writeFile(`${folder}/all.ts`, blocks.map(([, , code]) => code).join("\n"));
  await compile([`${folder}/all.ts`], root, ["--skipLibCheck", "--types", "node"]);
  if (!url) return t.diagnostic("TIDEWIRE_URL is not set: the code was not run");
  for (const path of ["streams/orders", "queues/mail"]) await fetch(`${url}/v1/${path}`, { method: "POST" });
  const program = blocks.filter(([, runs]) => runs).map(([, , code]) => code).join("\n").replaceAll("http://localhost:8080", url);
  const { outputText } = ts.transpileModule(program, { compilerOptions: { target: "es2022", module: "esnext" } });
  await writeFile(`${folder}/run.mjs`, outputText);
  await run(process.execPath, [`${folder}/run.mjs`], { timeout: 30_000 });
});
