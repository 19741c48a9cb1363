// How large the console is, compressed as the server sends it.
import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import { files } from "./build.js";

/** The most that a browser loads, compressed. */
export const limit = 80_000;

/** The bytes that a browser loads, and those of each file, compressed. */
export async function sizes() {
  const all = [...(await files())].filter(([path]) => !path.endsWith(".txt")).map(([path, contents]) => [path, gzipSync(contents, { level: 9 }).length]);
  return { all, total: all.reduce((sum, [, size]) => sum + size, 0) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { all, total } = await sizes();
  for (const [path, size] of all) console.log(`${path}: ${size} bytes`);
  console.log(`together ${total} bytes with gzip, of at most ${limit}`);
}
