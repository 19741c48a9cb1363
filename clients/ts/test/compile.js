// Type-checks files against the package.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export const root = fileURLToPath(new URL("..", import.meta.url));
export const run = promisify(execFile);

const flags = "--noEmit --strict --noUncheckedIndexedAccess --target es2022 --module nodenext --moduleResolution nodenext --lib es2022,dom,esnext.disposable".split(" ");

export async function compile(files, cwd = root, more = ["--typeRoots", "none"]) {
  try {
    await run(process.execPath, [`${root}node_modules/typescript/bin/tsc`, ...flags, ...more, ...files], { cwd });
  } catch (error) {
    throw new Error(error.stdout || error.message);
  }
}
