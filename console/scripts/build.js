// Builds the console into internal/console/dist. With --check it writes nothing, and fails if the files there are others.
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export const root = fileURLToPath(new URL("..", import.meta.url));
export const dist = join(root, "../internal/console/dist");

/** The files of the console, by their paths in dist. */
export async function files() {
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: ["src/main.tsx", "src/icon.svg"],
    outdir: join(dist, "assets"),
    entryNames: "[name]-[hash]",
    alias: { tidewire: "../clients/ts/src/index.ts" },
    loader: { ".svg": "copy" },
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: "esm",
    target: "es2022",
    legalComments: "none",
    // Members of the client that are not public end with "_". Those of Preact are "__".
    mangleProps: /[a-zA-Z0-9]_$/,
    logLevel: "warning",
  });
  const made = new Map(outputFiles.map((file) => [relative(dist, file.path), Buffer.from(file.contents)]));
  const name = (end) => [...made.keys()].find((path) => path.endsWith(end));
  const page = await readFile(join(root, "src/index.html"), "utf8");
  const put = { SCRIPT: name(".js"), STYLE: name(".css"), ICON: name(".svg") };
  made.set("index.html", Buffer.from(page.replace(/SCRIPT|STYLE|ICON/g, (word) => `/console/${put[word]}`)));
  made.set("LICENSES.txt", await licenses(metafile));
  return made;
}

/** The licences of the packages whose code is in the files. */
async function licenses({ inputs }) {
  const names = new Set(Object.keys(inputs).flatMap((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1] ?? []));
  const texts = [...names].sort().map(async (name) => `${name}\n\n${await readFile(join(root, "node_modules", name, "LICENSE"), "utf8")}`);
  return Buffer.from((await Promise.all(texts)).join("\n\n"));
}

/** The files that are in the folder now, by their paths. */
async function existing() {
  const all = new Map();
  for (const entry of await readdir(dist, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath ?? entry.path, entry.name);
    if (entry.isFile()) all.set(relative(dist, path), await readFile(path));
  }
  return all;
}

async function write(made) {
  await rm(dist, { recursive: true, force: true });
  for (const [path, contents] of made) {
    await mkdir(dirname(join(dist, path)), { recursive: true });
    await writeFile(join(dist, path), contents);
  }
}

async function check(made) {
  const found = await existing();
  const other = [...new Set([...made.keys(), ...found.keys()])].filter((path) => !made.get(path) || !found.get(path)?.equals(made.get(path)));
  if (!other.length) return;
  console.error(`internal/console/dist is not what console/src makes: run make console, and commit ${other.join(", ")}`);
  process.exit(1);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const made = await files();
  await (process.argv.includes("--check") ? check(made) : write(made));
}
