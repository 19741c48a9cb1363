// How each screen looks: dark and light, wide and narrow; that it can be used by everybody; and that data are never markup.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kill } from "../dead.js";
import { result, write } from "../results.js";
import { serve, v1 } from "../server.js";
import { becomes, launch, open, usable } from "./browser.js";
import { clean, nasty } from "./nasty.js";
import { sockets } from "./sockets.js";

let server, browser, base, results;
const part = encodeURIComponent;

before(async () => {
  results = await mkdtemp(join(tmpdir(), "results-"));
  await write(results, { one: result("ingest", 1000), two: result("ingest", 2000, { valid: false, checks: [] }), three: result("queue", 20) });
  [server, browser] = await Promise.all([serve("--results", results, "--stored-rooms", "kept"), launch()]);
  base = server.base;
  await v1(base, "POST", "streams/orders", { keyed: true });
  const messages = Array.from({ length: 60 }, (_, n) => ({ key: `customer-${n % 7}`, headers: { trace: "abc" }, payload: `{"id":${n},"paid":true,"total":12.50,"items":["tea",null]}` }));
  await v1(base, "POST", "streams/orders/messages", { messages });
  await v1(base, "POST", "streams/orders/groups/readers/commit", { position: 10 });
  await v1(base, "POST", "streams/parted", { partitions: 8 });
  await kill(base, "mail", messages, (position) => (position % 4 ? `smtp: 550 no such user at example.org, after ${position} s` : "timeout"));
  await v1(base, "POST", "queues/mail/messages", { messages });
  for (const text of ["Good morning", "Is the tide in?", "It is, since seven."]) await v1(base, "POST", "rooms/kept/chats", { user: "ann", text });
  await v1(base, "POST", "queues/busy");
  const events = Array.from({ length: 60 }, (_, n) => ({ type: n % 9 ? "StudentEnrolled" : "CourseOffered", tags: [`course:c${n % 4}`, `student:s${n % 7}`], id: `e${n}`, data: { n, paid: true } }));
  await v1(base, "POST", "events/stores/courses");
  await v1(base, "POST", "events", { store: "courses", events });
  await (await sockets(browser, base)).connect("", [{ type: "join", room: "lobby" }, { type: "consume", queue: "busy", credits: 20 }]);
});
after(async () => {
  await browser?.close();
  await server?.end();
  await rm(results, { recursive: true, force: true });
});

/** Each screen and state, with a text that shows that it is there. */
const screens = {
  overview: ["", "Connections of this server"],
  streams: ["streams", "Create a stream"],
  stream: ["streams/orders", "Position"],
  message: ["streams/orders?open=55&after=20", "Publish again"],
  hex: ["streams/orders?view=hex&open=3", "000000  7b"],
  live: ["streams/orders?live=1", "Waiting for the next message"],
  search: ["streams/orders?search=1&text=%22ID%22:5&path=paid&value=true&open=6", "All is read."],
  nothing: ["streams/orders?search=1", "Nothing is looked for yet"],
  replay: ["streams/orders?replay=1&into=queue&target=mail", "Count first"],
  group: ["streams/orders?group=readers", "readers continues with"],
  partitions: ["streams/parted", "Choose one"],
  connections: ["connections?verb=query&kind=events&tags=a", "everybody may do everything"],
  rooms: ["rooms", "Chats/s"],
  "no rooms": ["rooms?find=nothing", "No room with this in its name has members"],
  room: ["rooms/public?as=ann", "You see chats while you are in the room"],
  history: ["rooms/kept?show=history", "It is, since seven."],
  queues: ["queues", "delivers"],
  queue: ["queues/mail?open=61", "Copy payload"],
  dead: ["queues/mail?show=dead", "Next page"],
  consumers: ["queues/busy?show=consumers", "Unsettled"],
  letter: ["queues/mail?show=dead&open=3&reason=smtp", "Purge this"],
  stores: ["events", "Create an event store"],
  events: ["events/courses", "60 events match"],
  event: [`events/courses?q=${part(JSON.stringify([{ types: ["StudentEnrolled"], tags: ["course:c1"] }, { tags: ["course:c2"] }]))}&open=11&test=20&code=Go&asof=50`, "It would not hold."],
  "events, live": ["events/courses?live=1", "Waiting for the next event"],
  "no query": ["events/courses?q=1", "The query of this address cannot be read"],
  inspector: ["inspector?message=publish+a+message", "There is no frame yet"],
  bench: ["bench", "1,000 messages/s"],
  compared: ["bench?before=one&after=two&all=1", "+100.0 %"],
  access: ["access", "This server is in open mode"],
  acts: ["access?show=acts", "create queue"],
  denials: ["access?show=denials", "Nothing was denied"],
  nowhere: ["nothing", "There is nothing at this address"],
};

for (const [name, [path, text]] of Object.entries(screens)) {
  test(name, async (t) => {
    const page = await open(t, browser, base);
    await page.goto(`${base}/console/${path}`);
    await page.getByText(text).filter({ visible: true }).first().waitFor();
    await usable(page);
  });
}

test("groups and a question", async (t) => {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/queues/mail?show=dead`);
  await page.getByRole("button", { name: "Group by reason" }).click();
  await page.getByText("Of 60.").waitFor();
  await usable(page);
  await page.getByRole("button", { name: "Purge all …" }).click();
  await page.getByRole("dialog").waitFor();
  await usable(page);
});

test("frames", async (t) => {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/inspector?message=publish+a+message`);
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await page.getByText("Connected.").waitFor();
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.locator("table.frames tbody tr").nth(2).click();
  await page.getByRole("button", { name: "Copy frame" }).waitFor();
  await usable(page);
});

test("a conversation and its question", async (t) => {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/rooms/kept?as=ann`);
  await page.getByRole("button", { name: "Join" }).click();
  await page.getByLabel("Say").fill("Then let us go.");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByRole("log").getByText("Then let us go.").waitFor();
  await usable(page);
  await page.getByRole("button", { name: "Remove ann" }).click();
  await page.getByRole("dialog").waitFor();
  await usable(page);
});

test("tiles fill their rows, and what is looked for first can be seen", async (t) => {
  const page = await open(t, browser, base);
  for (const [path, text] of [screens.overview, screens.queue]) {
    await page.goto(`${base}/console/${path}`);
    await page.getByText(text).filter({ visible: true }).first().waitFor();
    for (const width of [1280, 1150, 900, 400]) {
      await page.setViewportSize({ width, height: 900 });
      const rows = await page.locator(".tile").evaluateAll((tiles) => Object.values(Object.groupBy(tiles, (tile) => tile.offsetTop)).map((row) => row.length));
      assert.equal(new Set(rows).size, 1, `${path} at ${width} pixels: ${rows}`);
    }
  }
  const inside = (name) => page.getByRole(...name).evaluate((node) => node.getBoundingClientRect().right <= node.closest(".scroll").getBoundingClientRect().right);
  for (const [path, name] of [["connections", ["columnheader", { name: "Waits" }]], ["streams/orders", ["button", { name: "Drop readers" }]], ["queues", ["rowheader", { name: /^mail oldest .+, delivers$/ }]]]) {
    await page.goto(`${base}/console/${path}`);
    await page.getByRole(...name).waitFor();
    assert.ok(await inside(name), `${path} at 400 pixels`);
  }
});

test("a plot takes the colours of the other scheme at once", async (t) => {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/`);
  const line = page.locator(".plot .drawing .s0").first();
  const stroke = () => line.evaluate((path) => getComputedStyle(path).stroke);
  await line.waitFor({ state: "attached" });
  assert.equal(await stroke(), "rgb(0, 99, 166)");
  await page.emulateMedia({ colorScheme: "dark" });
  await becomes(stroke, "rgb(92, 179, 255)");
});

test("all plots show the values of the second under the pointer", async (t) => {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/`);
  const drawing = page.locator(".plot .drawing svg");
  await drawing.first().hover({ position: { x: 5, y: 20 } });
  await becomes(() => page.locator(".plot time").count(), 6);
  assert.match(await page.locator(".plot time").first().innerText(), /^ at \d\d:\d\d:\d\d$/);
  await becomes(() => page.locator(".plot .under").count(), 6);
  await page.locator("h1").hover();
  await becomes(() => page.locator(".plot time").count(), 0);
});

test("no data are markup, in any field", async (t) => {
  for (const [i, text] of nasty.entries()) {
    await v1(base, "POST", `streams/${part(text)}`, { keyed: true });
    const others = nasty.map((payload, j) => ({ key: nasty[(j + i) % nasty.length], headers: { [payload]: payload }, payload: j % 2 ? payload : JSON.stringify({ [payload]: [payload] }) }));
    await v1(base, "POST", `streams/${part(text)}/messages`, { messages: others });
    await v1(base, "POST", `streams/${part(text)}/groups/${part(text)}/commit`, { position: 1 });
  }
  for (const [i, text] of nasty.entries()) {
    const letters = nasty.map((payload, j) => ({ key: nasty[(j + i) % nasty.length], headers: { [payload]: payload }, payload }));
    await kill(base, `${text}!`, letters, (position) => nasty[position % nasty.length]);
    await v1(base, "POST", `queues/${part(`${text}!`)}/messages`, { messages: letters });
  }
  for (const [i, text] of nasty.entries()) {
    await v1(base, "POST", `events/stores/${part(`${text}?`)}`);
    const events = nasty.map((data, j) => ({ type: nasty[(j + i) % nasty.length], tags: [data, text], id: data, data: { [data]: [data] } }));
    await v1(base, "POST", "events", { store: `${text}?`, events });
  }
  const rows = nasty.map((name) => ({ name, metrics: { messages_per_second: 5, [name]: 1 }, limiter: name }));
  const environment = { cpu: nasty[0], cores: 2, memory_bytes: 1, os: "", kernel: "", go: "" };
  await write(results, Object.fromEntries(nasty.map((text, i) => [`nasty${i} ${text.replaceAll("/", "")}`, result(text, 5, { rows, environment, params: { [text]: text } })])));
  const page = await open(t, browser, base, { allowed: ["404", "400", "410"] });
  await page.goto(`${base}/console/streams`);
  for (const text of nasty) await page.getByRole("link", { name: text, exact: true }).waitFor();
  await clean(page, "list");
  for (const text of nasty) {
    for (const view of ["json", "text", "hex"]) {
      await page.goto(`${base}/console/streams/${part(text)}?open=1&view=${view}`);
      await page.getByRole("heading", { name: text, exact: true }).waitFor();
      await page.getByRole("button", { name: "Publish again" }).click();
      await page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: text, exact: true }) }).waitFor();
      await clean(page, `${text} as ${view}`);
      if (view !== "json") continue;
      await page.getByRole("button", { name: `Drop ${text}`, exact: true }).click();
      await page.getByRole("dialog").waitFor();
      await clean(page, `drop of ${text}`);
    }
    assert.equal(await page.title(), `${text} · Tidewire`);
    await page.goto(`${base}/console/streams/orders?live=1&key=${part(text)}&view=${part(text)}`);
    await page.getByText(`key ${text}`).waitFor();
    await page.goto(`${base}/console/streams/orders?after=${part(text)}&open=${part(text)}&key=${part(text)}`);
    await page.getByText("No message here has this key").waitFor();
    await page.goto(`${base}/console/streams/${part(text)}?search=1&text=${part(text)}`);
    await page.locator("mark").first().waitFor();
    await clean(page, `search for ${text}`);
    await page.goto(`${base}/console/streams/orders?search=1&${["text", "case", "path", "value", "key", "from", "to"].map((name) => `${name}=${part(text)}`).join("&")}`);
    await page.getByText("No message matches").waitFor();
    await page.goto(`${base}/console/streams/${part(text)}?replay=1&into=${part(text)}&target=${part(`${text}!`)}&from=${part(text)}`);
    await page.getByLabel("Into the").selectOption("queue");
    await page.getByLabel("From position").fill("1");
    await page.getByRole("button", { name: "Count first" }).click();
    await page.getByRole("button", { name: "Replay 8 messages …" }).click();
    await page.getByRole("dialog").waitFor();
    await clean(page, `replay of ${text}`);
    await page.goto(`${base}/console/streams?find=${part(text)}`);
    await page.getByRole("link", { name: text, exact: true }).waitFor();
    await page.goto(`${base}/console/${part(text)}/${part(text)}`);
    await clean(page, `addresses with ${text}`);
  }
  await page.goto(`${base}/console/queues`);
  for (const text of nasty) await page.getByRole("link", { name: `${text}!`, exact: true }).waitFor();
  await clean(page, "queues");
  for (const text of nasty) {
    await page.goto(`${base}/console/queues/${part(text)}!?open=${nasty.length + 1}`);
    await page.getByRole("button", { name: "Copy payload" }).waitFor();
    await clean(page, `ready of ${text}`);
    await page.goto(`${base}/console/queues/${part(text)}!?show=dead&open=1`);
    await page.getByRole("button", { name: "Purge this" }).waitFor();
    await page.getByRole("button", { name: "Group by reason" }).click();
    await page.getByText(`Of ${nasty.length}.`).waitFor();
    await page.getByRole("button", { name: "Purge all …" }).click();
    await page.getByRole("dialog").waitFor();
    await clean(page, `dead of ${text}`);
    await page.goto(`${base}/console/queues/mail?show=dead&${["reason", "key", "min_attempts", "since", "after", "open", "view"].map((name) => `${name}=${part(text)}`).join("&")}`);
    await page.getByText("The dead letters could not be read").waitFor();
    await clean(page, `filter with ${text}`);
  }
  const other = await open(t, browser, base);
  for (const text of nasty) {
    await v1(base, "POST", "rooms/kept/chats", { user: text, text });
    await page.goto(`${base}/console/rooms/${part(text)}?as=${part(text)}&before=${part(text)}`);
    await page.getByRole("button", { name: "Join" }).click();
    await page.getByLabel("Say").fill(text);
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("log").getByText(text).last().waitFor();
    await other.goto(`${base}/console/rooms?find=${part(text)}`);
    await other.getByRole("link", { name: text, exact: true }).waitFor();
    await page.getByRole("button", { name: `Remove ${text}` }).click();
    await page.getByRole("dialog").waitFor();
    await clean(page, `room ${text}`);
  }
  await page.goto(`${base}/console/rooms/kept?show=history`);
  for (const text of nasty) await page.getByRole("group", { name: "History" }).locator("span", { hasText: text }).waitFor();
  await clean(page, "history");
  await page.goto(`${base}/console/events`);
  for (const text of nasty) await page.getByRole("link", { name: `${text}?`, exact: true }).waitFor();
  await clean(page, "event stores");
  for (const text of nasty) {
    const at = `${base}/console/events/${part(`${text}?`)}`;
    await page.goto(`${at}?q=${part(JSON.stringify([{ types: nasty, tags: [text] }]))}&open=1&test=1&code=TypeScript`);
    await page.getByText("It would not hold.").waitFor();
    await page.getByRole("button", { name: "Copy data" }).waitFor();
    await page.getByText("events match").waitFor();
    await clean(page, `events of ${text}`);
    await page.goto(`${at}?${["q", "open", "test", "code", "asof", "after", "before", "view"].map((name) => `${name}=${part(text)}`).join("&")}`);
    await page.getByRole("button", { name: "Show all events" }).click();
    await page.locator("table.events tbody tr").first().waitFor();
    await clean(page, `addresses of events with ${text}`);
  }
  const quiet = `${base}/console/events/${part(`${nasty[0]}?`)}`;
  await page.goto(`${quiet}?live=1`);
  await page.getByText("Live", { exact: true }).waitFor();
  await v1(base, "POST", "events", { store: `${nasty[0]}?`, events: nasty.map((type) => ({ type, tags: [type], data: type })) });
  await page.locator("table.events tbody tr").nth(nasty.length - 1).waitFor();
  await clean(page, "live events");
  await page.goto(`${base}/console/inspector?message=${part(nasty[0])}`);
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await page.getByText("Connected.").waitFor();
  for (const text of nasty) {
    for (const frame of [text, JSON.stringify({ type: text, id: text, [text]: text })]) {
      await page.getByLabel("Frame, as it is sent").fill(frame);
      await page.getByRole("button", { name: "Send", exact: true }).click();
    }
  }
  await page.locator("table.frames tbody tr").nth(nasty.length * 3 - 1).waitFor();
  await page.getByLabel("Contains").fill(nasty[0]);
  await page.locator("table.frames tbody tr").first().click();
  await page.getByRole("button", { name: "Copy frame" }).waitFor();
  await clean(page, "frames");
  await page.goto(`${base}/console/bench`);
  for (const text of nasty) await page.getByRole("cell", { name: text, exact: true }).waitFor();
  await clean(page, "results");
  const [one, two] = (await v1(base, "GET", "bench")).results.filter((each) => each.result.startsWith("nasty")).map((each) => each.result);
  await page.goto(`${base}/console/bench?all=1&before=${part(one)}&after=${part(two)}`);
  for (const text of nasty) await page.getByRole("rowheader", { name: text, exact: true }).first().waitFor();
  await clean(page, "compared");
  await page.goto(`${base}/console/bench?find=${part(nasty[0])}&scenario=${part(nasty[1])}&before=${part(nasty[2])}&after=${part(nasty[3])}`);
  await page.getByText("The results could not be compared").waitFor();
  await clean(page, "an address of results");
  await page.goto(`${base}/console/streams/orders?live=1`);
  await page.getByText("Live", { exact: true }).waitFor();
  await v1(base, "POST", "streams/orders/messages", { messages: nasty.map((payload) => ({ key: payload, payload, headers: { a: payload } })) });
  await page.locator("table.messages tbody tr").nth(nasty.length - 1).waitFor();
  await clean(page, "live");
});
