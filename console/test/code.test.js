// The programs that are copied: they publish what they came from, whatever it has.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { transform } from "esbuild";
import { load } from "./load.js";

const { codeOf } = await load("streams/code.ts");
const { languages, shell } = await load("parts/program.ts");

const nasty = `it's "q" $(touch x) \`y\` \\ %s \n\t</script> ä漢🙂 \u2028`;
const messages = [
  { key: undefined, headers: undefined, payload: '{"id":9007199254740993}' },
  { key: nasty, headers: JSON.stringify({ [nasty]: [nasty, 1.5, true, false, null, { a: [] }] }), payload: nasty },
  { key: "", headers: "{}", payload: new Uint8Array([255, 0, 39]) },
].flatMap((m) => [false, true].map((closed) => ({ origin: "https://tw.example:8080", stream: `s'/${nasty}`, closed, ...m })));

const has = (program) => spawnSync(program, ["--version"]).status === 0;

test("curl sends the message", () => {
  for (const m of messages) {
    const script = `curl() { printf '%s\\0' "$@"; }\n${codeOf("curl", m)}`;
    const parts = execFileSync("sh", ["-c", script], { encoding: "utf8", env: { ...process.env, TOKEN: "secret" } }).split("\0");
    assert.equal(parts[0], `${m.origin}/v1/streams/${encodeURIComponent(m.stream)}/messages`);
    const body = JSON.parse(parts[parts.indexOf("-d") + 1]);
    assert.equal(body.key, m.key);
    assert.deepEqual(body.headers, m.headers && JSON.parse(m.headers));
    assert.deepEqual(body.payload ?? [...Buffer.from(body.payload_base64, "base64")], typeof m.payload === "string" ? m.payload : [...m.payload]);
    assert.equal(parts.includes("Authorization: Bearer secret"), m.closed);
  }
  assert.equal(execFileSync("sh", ["-c", `printf %s ${shell("a'b")}`], { encoding: "utf8" }), "a'b");
});

test("TypeScript is well formed, and gives the client the same values", async () => {
  for (const m of messages) {
    const { code } = await transform(codeOf("TypeScript", m), { loader: "ts", format: "esm" });
    const got = {};
    const tw = { stream: (name) => ({ publish: (value, options = {}) => Object.assign(got, { name, value, options }) }), close() {} };
    const body = code.replace(/^import .*$/m, "");
    await new (Object.getPrototypeOf(async () => {}).constructor)("connect", "text", "bytes", body)(() => tw);
    assert.equal(got.name, m.stream);
    assert.deepEqual(got.value, m.payload);
    assert.equal(got.options.key, m.key);
    assert.deepEqual(got.options.headers, m.headers && JSON.parse(m.headers));
  }
});

test("Python is well formed, and has the same values", { skip: !has("python3") && "there is no python3" }, () => {
  for (const m of messages) {
    const script = `
import sys, types, json, ast
class Stream:
    async def publish(self, value, key=None, headers=None):
        print(json.dumps([self.name, list(value) if isinstance(value, bytes) else value, key, headers]))
class Client:
    async def __aenter__(self): return self
    async def __aexit__(self, *_): pass
    def stream(self, name, type): s = Stream(); s.name = name; return s
sys.modules["tidewire"] = types.SimpleNamespace(connect=lambda url, token=None: Client(), text=1, binary=2)
exec(sys.stdin.read())`;
    const out = execFileSync("python3", ["-c", script], { input: codeOf("Python", m), encoding: "utf8", env: { ...process.env, TOKEN: "x" } });
    assert.deepEqual(JSON.parse(out), [m.stream, typeof m.payload === "string" ? m.payload : [...m.payload], m.key ?? null, m.headers ? JSON.parse(m.headers) : null]);
  }
});

test("Go is well formed", { skip: spawnSync("gofmt", ["-h"]).error && "there is no gofmt" }, () => {
  const folder = mkdtempSync(join(tmpdir(), "code-"));
  try {
    messages.forEach((m, i) => writeFileSync(join(folder, `${i}.go`), `${codeOf("Go", m)}\n`));
    assert.equal(execFileSync("gofmt", ["-l", folder], { encoding: "utf8" }), "", "gofmt would change these");
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("no program has a token in it", () => {
  for (const language of languages) for (const m of messages) assert.equal(codeOf(language, m).includes("TOKEN"), m.closed, language);
});

test("TypeScript sends large numbers as they were written", () => {
  const text = codeOf("TypeScript", { origin: "http://x", stream: "..", key: undefined, closed: false, payload: "", headers: '{"id":9007199254740993,"n":[1.5,{"__proto__":2}]}' });
  assert.match(text, /headers: \{"id":\(JSON as any\)\.rawJSON\("9007199254740993"\),"n":\[1\.5,\{\["__proto__"\]:2\}\]\}/);
  assert.match(codeOf("curl", { origin: "http://x", stream: "..", key: undefined, closed: false, payload: "", headers: undefined }), /streams\/~\.\.\/messages/);
});
