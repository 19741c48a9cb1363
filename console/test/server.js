// A real server with a PostgreSQL of its own, for tests and screenshots.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const program = fileURLToPath(new URL("../../bin/tidewire", import.meta.url));

/** Starts the server, and returns its address. `end` stops it. */
export async function serve(...flags) {
  const folder = await mkdtemp(join(process.env.CONSOLE_TMP ?? tmpdir(), "console-"));
  await chmod(folder, 0o755); // as root, PostgreSQL runs as another user
  const server = spawn(program, ["serve", "--port", "0", "--data-dir", join(folder, "data"), ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  const ready = new Promise((resolve, reject) => {
    const read = (text) => {
      log += text;
      const port = log.match(/^listening on .*:(\d+)$/m)?.[1];
      if (port) resolve(`http://127.0.0.1:${port}`);
    };
    server.stdout.on("data", read);
    server.stderr.on("data", read);
    server.on("exit", () => reject(new Error(log)));
  });
  const end = async () => {
    if (server.exitCode === null) {
      server.kill("SIGTERM");
      await once(server, "exit");
    }
    await rm(folder, { recursive: true, force: true });
  };
  try {
    return { base: await ready, end, pid: server.pid, data: join(folder, "data") };
  } catch (error) {
    await end();
    throw error;
  }
}

/** A request of /v1, which has to succeed. */
export async function v1(base, method, path, body, token) {
  const headers = { ...(body !== undefined && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${token}` }) };
  const response = await fetch(`${base}/v1/${path}`, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
  return answer;
}
