// Prints the size of everything together, minified, and of it compressed.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** The most that it may have, compressed: what it has, and a little room. Gaps of members, and of messages that are too large, are the last 150. */
export const limit = 12_950;

export function sizes() {
  const text = readFileSync(new URL("../dist/tidewire.min.js", import.meta.url));
  return { minified: text.length, gzip: gzipSync(text, { level: 9 }).length };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { minified, gzip } = sizes();
  console.log(`tidewire.min.js: ${minified} bytes, ${gzip} with gzip (at most ${limit})`);
  if (gzip > limit) process.exit(1);
}
