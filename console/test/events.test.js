// Queries of events: in the address, as programs, and the events that they match.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { transform } from "esbuild";
import { load } from "./load.js";

const { codeOf, forms } = await load("events/code.ts");
const { countOn, itemsOf, matches, remember, seen, selecting, shown } = await load("events/data.ts");

const nasty = `it's "q" $(touch x) \`y\` \\ %s \n\t</script> ä漢🙂 \u2028`;
const queries = [[], [{ types: [nasty, "B"] }], [{ tags: [nasty, "a:1"] }], [{ types: ["A"], tags: [nasty] }, { tags: ["b"] }]];
const asked = queries.flatMap((items) => [false, true].map((closed) => ({ origin: "https://tw.example:8080", store: `s'/${nasty}`, closed, items })));

test("the items of an address are read, and others are refused", () => {
  assert.deepEqual(itemsOf(null), []);
  assert.deepEqual(itemsOf('[{"types":["A"],"tags":[],"x":1},{}]'), [{ types: ["A"] }, {}]);
  assert.deepEqual(selecting([{ types: ["A"] }, {}]), [{ types: ["A"] }]);
  for (const wrong of ["{", "1", "{}", "[1]", "[null]", '[{"types":"A"}]', '[{"tags":[1]}]']) assert.equal(itemsOf(wrong), undefined, wrong);
});

test("an event matches an item as on the server", () => {
  const event = { type: "A", tags: ["x", "y"] };
  for (const item of [{}, { types: ["B", "A"] }, { tags: ["y", "x"] }, { types: ["A"], tags: ["x"] }]) assert.ok(matches(item, event));
  for (const item of [{ types: ["B"] }, { tags: ["x", "z"] }, { types: ["B"], tags: ["x"] }]) assert.ok(!matches(item, event));
});

test("data are shown as they were written", () => {
  const events = shown('{"events":[{"position":1,"time":"t","type":"A","tags":[],"data":{"n": 9007199254740993}},{"position":2,"time":"t","type":"B","tags":["x"],"id":"i"},{"position":3,"time":"t","type":"C","tags":[],"data_base64":"AP8="},{"position":4,"time":"t","type":"C","tags":[],"data":null}],"next":4}');
  assert.deepEqual(events.map(({ payload }) => payload), ['{"n":9007199254740993}', "", new Uint8Array([0, 255]), "null"]);
  assert.equal(events[1].id, "i");
});

test("tags are remembered for one store, up to a limit", () => {
  remember("a", [{ type: "T", tags: ["x", "y"] }, { type: "U", tags: ["x"] }]);
  assert.deepEqual(seen.value, { store: "a", tags: ["x", "y"], types: ["T", "U"] });
  remember("b", Array.from({ length: 1500 }, (_, i) => ({ type: "T", tags: [`${i}`] })));
  assert.equal(seen.value.tags.length, 1000);
  assert.equal(seen.value.tags.at(-1), "1499");
});

test("what comes is added to the counts", async (t) => {
  const events = [{ position: 8, type: "A", tags: ["x"] }, { position: 9, type: "B", tags: ["x"] }];
  t.mock.method(globalThis, "fetch", async (_, { body }) => {
    assert.equal(JSON.parse(body).after, 5);
    return new Response(JSON.stringify({ events, next: 9 }));
  });
  const before = { after: 5, turn: 0, counts: [3, 2, 1], more: false };
  assert.deepEqual(await countOn("s", [{ types: ["A"] }, { tags: ["x"] }], before), { after: 9, turn: 1, more: false, counts: [5, 3, 3] });
  events.length = 0;
  assert.deepEqual(await countOn("s", [], before), before);
});

test("curl sends the query", () => {
  for (const a of asked) {
    const parts = execFileSync("sh", ["-c", `curl() { printf '%s\\0' "$@"; }\n${codeOf("curl", a)}`], { encoding: "utf8", env: { ...process.env, TOKEN: "secret" } }).split("\0");
    assert.equal(parts[0], `${a.origin}/v1/events/query`);
    assert.deepEqual(JSON.parse(parts[parts.indexOf("-d") + 1]), { store: a.store, query: { items: a.items } });
    assert.deepEqual(JSON.parse(codeOf("JSON", a)), { store: a.store, query: { items: a.items } });
  }
});

test("TypeScript is well formed, and has the same query", async () => {
  for (const a of asked) {
    const { code } = await transform(codeOf("TypeScript", a), { loader: "ts", format: "esm" });
    const got = {};
    const tw = { events: (store) => ({ query: async function* (query) { Object.assign(got, { store, query }); } }), close() {} };
    await new (Object.getPrototypeOf(async () => {}).constructor)("connect", code.replace(/^import .*$/m, ""))(() => tw);
    assert.deepEqual(got, { store: a.store, query: { items: a.items } });
  }
});

test("Python is well formed, and has the same query", { skip: spawnSync("python3", ["--version"]).status !== 0 && "there is no python3" }, () => {
  const library = new URL("../../clients/python/src/tidewire", import.meta.url).pathname;
  for (const a of asked) {
    const script = `
import sys, types, json, importlib.util
spec = importlib.util.spec_from_file_location("query", ${JSON.stringify(library)} + "/query.py")
query = importlib.util.module_from_spec(spec); sys.modules["query"] = query; spec.loader.exec_module(query)
class Events:
    async def query(self, q):
        print(json.dumps([self.name, q.to_wire().get("items", [])]))
        return
        yield
class Client:
    async def __aenter__(self): return self
    async def __aexit__(self, *_): pass
    def events(self, name): e = Events(); e.name = name; return e
sys.modules["tidewire"] = types.SimpleNamespace(connect=lambda url, token=None: Client(), types=query.types, tagged=query.tagged, everything=query.everything)
exec(sys.stdin.read())`;
    const out = execFileSync("python3", ["-c", script], { input: codeOf("Python", a), encoding: "utf8", env: { ...process.env, TOKEN: "x" } });
    assert.deepEqual(JSON.parse(out), [a.store, a.items]);
  }
});

test("Go is well formed", { skip: spawnSync("gofmt", ["-h"]).error && "there is no gofmt" }, () => {
  const folder = mkdtempSync(join(tmpdir(), "code-"));
  try {
    asked.forEach((a, i) => writeFileSync(join(folder, `${i}.go`), `${codeOf("Go", a)}\n`));
    assert.equal(execFileSync("gofmt", ["-l", folder], { encoding: "utf8" }), "", "gofmt would change these");
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("no program has a token in it", () => {
  for (const form of forms) for (const a of asked) assert.equal(codeOf(form, a).includes("TOKEN"), a.closed && form !== "JSON", form);
});
