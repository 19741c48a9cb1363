// Loads a module of src, without the rest of the page.
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));

globalThis.sessionStorage ??= { getItem: () => null, setItem() {}, removeItem() {} };

export async function load(path) {
  const { outputFiles } = await build({
    absWorkingDir: root, entryPoints: [`src/${path}`], alias: { tidewire: "../clients/ts/src/index.ts" },
    bundle: true, write: false, format: "esm", target: "es2022", jsx: "automatic", jsxImportSource: "preact",
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}
