import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "esbuild";
import { limit, sizes } from "../scripts/size.js";
import { root } from "./compile.js";

test("everything together is small", () => {
  const { gzip } = sizes();
  assert.ok(gzip <= limit, `${gzip} bytes with gzip, of ${limit}`);
});

test("a program that uses one function has only that", async () => {
  const stdin = { contents: 'import { tagged } from "./dist/index.js"; console.log(tagged("a"));', resolveDir: root };
  const { outputFiles } = await build({ stdin, bundle: true, minify: true, format: "esm", write: false });
  assert.ok(outputFiles[0].contents.length < 500, outputFiles[0].text);
});
