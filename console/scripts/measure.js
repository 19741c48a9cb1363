// Measures what the console does to a server, and what a fast stream does to the console. It prints figures; docs/benchmarks/console.md has some.
//
//   node scripts/measure.js consoles [ROUNDS]   CPU of a server without and with five consoles, in turn, first without load
//   node scripts/measure.js tail [SECONDS]      frames and memory of a page that follows a stream with 100,000 messages/s
import { readFileSync, readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { serve, v1 } from "../test/server.js";
import { launch } from "../test/browser/browser.js";

const bodyOf = (messages, payload) => JSON.stringify({ messages: Array.from({ length: messages }, (_, i) => ({ payload: JSON.stringify({ id: i, note: payload }) })) });

/** Publishes batches at a steady rate, and returns what stops it and how many messages it has stored. */
function publish(base, stream, { perSecond, batch, payload, connections }) {
  const body = bodyOf(batch, payload);
  const state = { sent: 0, stop: false };
  const every = (1000 * batch * connections) / perSecond;
  const one = async (first) => {
    for (let due = first; !state.stop; due = Math.max(due + every, performance.now() - 1000)) {
      await sleep(Math.max(0, due - performance.now()));
      const answer = await fetch(`${base}/v1/streams/${stream}/messages`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
      if (!answer.ok) throw new Error(await answer.text());
      await answer.arrayBuffer();
      state.sent += batch;
    }
  };
  const all = Array.from({ length: connections }, (_, i) => one(performance.now() + (i * every) / connections));
  return { state, end: async () => { state.stop = true; await Promise.all(all); } };
}

/** A process and all that it has started, with the CPU time of each, also of its children that have ended. */
function descendants(root) {
  const all = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) => {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/.*\) /s, "").split(" ");
      return [{ pid: +pid, parent: +fields[1], seconds: (+fields[11] + +fields[12] + +fields[13] + +fields[14]) / 100 }];
    } catch {
      return []; // it has ended
    }
  });
  const mine = new Set([root]);
  for (let before = 0; before !== mine.size; ) {
    before = mine.size;
    for (const { pid, parent } of all) if (mine.has(parent)) mine.add(pid);
  }
  return all.filter(({ pid }) => mine.has(pid));
}

/** The CPU seconds of the server and its PostgreSQL. */
const cpuOf = (root) => descendants(root).reduce((sum, { seconds }) => sum + seconds, 0);

/** The memory of the page's process that it shares with no other, in MB. */
function rendererMemory() {
  const sizes = descendants(process.pid).flatMap(({ pid }) => {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--type=renderer")) return [];
      return [[...readFileSync(`/proc/${pid}/smaps_rollup`, "utf8").matchAll(/^Private_(?:Clean|Dirty): +(\d+) kB$/gm)].reduce((sum, [, kb]) => sum + +kb / 1024, 0)];
    } catch {
      return [];
    }
  });
  return Math.max(0, ...sizes);
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

/** Asks what an open console asks, each second. A browser on this machine would take CPU from the server, so there is none. */
function watch(base) {
  const stop = new AbortController();
  const run = async () => {
    for (let after = 0; !stop.signal.aborted; await sleep(1000)) {
      const answer = await (await fetch(`${base}/v1/overview?after=${after}`)).json();
      after = answer.points.time.at(-1) ?? after;
    }
  };
  const ended = run();
  return { end: async () => { stop.abort(); await ended; } };
}

/** The CPU of the server, in shares of a core, without and with five consoles in turn. */
async function inTurn(server, rounds, stored) {
  const found = { 0: [], 5: [] };
  for (let round = 0; round < rounds; round++) {
    for (const count of round % 2 ? [5, 0] : [0, 5]) {
      const open = Array.from({ length: count }, () => watch(server.base));
      await sleep(2000);
      const [cpu, sent, began] = [cpuOf(server.pid), stored(), performance.now()];
      await sleep(20_000);
      const wall = (performance.now() - began) / 1000;
      found[count].push((cpuOf(server.pid) - cpu) / wall);
      console.log(`${count} consoles: ${(100 * found[count].at(-1)).toFixed(2)} % of a core, ${Math.round((stored() - sent) / wall)} messages/s`);
      await Promise.all(open.map((one) => one.end()));
    }
  }
  const [without, five] = [median(found[0]), median(found[5])];
  console.log(`median without: ${(100 * without).toFixed(2)} % of a core, with five: ${(100 * five).toFixed(2)} %, difference ${(100 * (five - without)).toFixed(2)} %`);
}

async function consoles(rounds) {
  const server = await serve();
  for (let i = 0; i < 20; i++) {
    await v1(server.base, "POST", `streams/s${i}`, {});
    await v1(server.base, "POST", `queues/q${i}`, {});
  }
  console.log("without load:");
  await inTurn(server, rounds, () => 0);
  console.log("with load:");
  const load = publish(server.base, "s0", { perSecond: 5000, batch: 20, payload: "x".repeat(60), connections: 4 });
  await inTurn(server, rounds, () => load.state.sent);
  await load.end();
  await server.end();
}

async function tail(seconds) {
  const [server, browser] = await Promise.all([serve(), launch()]);
  await v1(server.base, "POST", "streams/fast", {});
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
  await page.goto(`${server.base}/console/streams/fast?live=1`);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.evaluate(() => {
    globalThis.frames = 0;
    const next = () => {
      globalThis.frames++;
      requestAnimationFrame(next);
    };
    next();
  });
  const cdp = await page.context().newCDPSession(page);
  const load = publish(server.base, "fast", { perSecond: 100_000, batch: 1000, payload: "order", connections: 4 });
  const frames = [];
  let [most, whole] = [0, 0];
  for (let i = 0; i < seconds / 5; i++) {
    const [before, sent, began] = [await page.evaluate(() => globalThis.frames), load.state.sent, performance.now()];
    await sleep(5000);
    const wall = (performance.now() - began) / 1000;
    frames.push(((await page.evaluate(() => globalThis.frames)) - before) / wall);
    const { usedSize } = await cdp.send("Runtime.getHeapUsage");
    most = Math.max(most, usedSize / 1e6);
    whole = Math.max(whole, rendererMemory());
    console.log(`${frames.at(-1).toFixed(0)} frames/s, ${Math.round((load.state.sent - sent) / wall)} messages/s, heap ${(usedSize / 1e6).toFixed(1)} MB, ${await page.locator(".live + p").innerText()}`);
  }
  console.log(`median ${median(frames).toFixed(0)} frames/s, lowest ${Math.min(...frames).toFixed(0)}; heap at most ${most.toFixed(1)} MB, process at most ${whole.toFixed(0)} MB; ${Math.round(load.state.sent / seconds)} messages/s`);
  await load.end();
  await Promise.all([browser.close(), server.end()]);
}

const [what, n] = process.argv.slice(2);
if (what === "consoles") await consoles(Number(n ?? 6));
else if (what === "tail") await tail(Number(n ?? 120));
else {
  console.error("measure.js: want consoles [ROUNDS] or tail [SECONDS]");
  process.exit(2);
}
