// Builds the package with tsc, and one minified file with esbuild.
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
rmSync(`${root}dist`, { recursive: true, force: true });
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc"], { cwd: root, stdio: "inherit" });
await build({
  absWorkingDir: root,
  entryPoints: ["dist/index.js"],
  outfile: "dist/tidewire.min.js",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  // Members that are not public end with "_".
  mangleProps: /_$/,
  logLevel: "warning",
});
