// Makes the pictures of the documents from a server with the data of a small shop: docs/images/console-NAME.webp.
import { mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { kill } from "../test/dead.js";
import { serve, v1 } from "../test/server.js";
import { launch } from "../test/browser/browser.js";

const folder = fileURLToPath(new URL("../../docs/images/", import.meta.url));
/** How long the server works before the pictures are made, in seconds: the plots show it. */
const busy = Number(process.env.BUSY ?? 240);

const query = JSON.stringify([{ types: ["StudentEnrolled"], tags: ["course:go-1"] }]);
const pictures = [
  { name: "overview", path: "", text: "From publish to commit", width: 1280, height: 860, scheme: "light" },
  { name: "stream", path: "streams/orders?after=40&open=52", text: "Publish again", width: 1280, height: 800, scheme: "light" },
  { name: "dead-letters", path: "queues/mail?show=dead", text: "Next page", width: 1280, height: 980, scheme: "dark" },
  { name: "events", path: `events/courses?q=${encodeURIComponent(query)}&open=7&test=4`, text: "It would not hold.", width: 1280, height: 980, scheme: "light" },
  { name: "phone", path: "streams/orders", text: "Position", width: 400, height: 800, scheme: "dark" },
];

const customers = ["ada", "grace", "edsger", "barbara", "tony", "frances"];
const order = (id) => ({ key: customers[id % 6], headers: { source: id % 3 ? "web" : "shop" }, payload: JSON.stringify({ order: 1000 + id, customer: customers[id % 6], items: 1 + (id % 4), total: (9.5 + (id * 7) % 90).toFixed(2), paid: id % 5 > 0 }) });
const mail = (id) => ({ key: customers[id % 6], payload: JSON.stringify({ to: `${customers[id % 6]}@example.org`, template: id % 2 ? "receipt" : "shipped", order: 1000 + id }) });

async function fill(base) {
  await v1(base, "POST", "streams/orders", { keyed: true });
  await v1(base, "POST", "streams/orders/messages", { messages: Array.from({ length: 120 }, (_, id) => order(id)) });
  for (const [group, position] of [["billing", 118], ["search-index", 96]]) await v1(base, "POST", `streams/orders/groups/${group}/commit`, { position });
  for (const name of ["payments", "clicks", "audit"]) await v1(base, "POST", `streams/${name}`, {});
  await v1(base, "POST", "streams/sensors", { partitions: 8 });
  await kill(base, "mail", Array.from({ length: 140 }, (_, id) => mail(id)), (position) => ["smtp: 550 no such user", "smtp: 421 try again later", "template not found: shipped"][position % 7 % 3]);
  await v1(base, "POST", "events/stores/courses");
  const enrolled = customers.map((student, i) => ({ type: "StudentEnrolled", tags: [`course:go-${1 + (i % 2)}`, `student:${student}`], data: { seats: 8 - i } }));
  const offered = [1, 2].map((n) => ({ type: "CourseOffered", tags: [`course:go-${n}`], data: { title: `Go, part ${n}`, seats: 8 } }));
  await v1(base, "POST", "events", { store: "courses", events: [...offered, ...enrolled] });
  for (const name of ["thumbnails", "webhooks"]) await v1(base, "POST", `queues/${name}`, {});
}

/** Reads a stream until the server ends. */
async function follow(base, stream) {
  const { body } = await fetch(`${base}/v1/streams/${stream}/follow`);
  try {
    for await (const _ of body);
  } catch {
    // the server has ended
  }
}

/** Publishes, chats and enqueues for some time, now more and now less. */
async function work(base) {
  for (let i = 0; i < 3; i++) void follow(base, "payments");
  for (let second = 0; second < busy; second++) {
    const began = performance.now();
    const many = Math.round(40 + 25 * Math.sin(second / 17) + 10 * Math.sin(second / 3));
    await v1(base, "POST", "streams/payments/messages", { messages: Array.from({ length: many }, (_, id) => order(id)) });
    for (let i = 0; i < 3 + (second % 5); i++) await v1(base, "POST", "rooms/public/chats", { text: "hello", user: customers[i % 6] });
    await v1(base, "POST", "queues/mail/messages", mail(second));
    await new Promise((next) => setTimeout(next, Math.max(0, 1000 - performance.now() + began)));
    if (second % 30 === 0) console.log(`the server works: ${second} of ${busy} s`);
  }
}

async function take(browser, base, { name, path, text, width, height, scheme }) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, timezoneId: "UTC", locale: "en-GB" });
  const page = await context.newPage();
  await page.goto(`${base}/console/${path}`);
  await page.getByText(text).first().waitFor();
  await page.waitForTimeout(1500); // numbers that come a moment later
  const cdp = await context.newCDPSession(page);
  const { data } = await cdp.send("Page.captureScreenshot", { format: "webp", quality: 70 });
  const bytes = Buffer.from(data, "base64");
  await writeFile(`${folder}console-${name}.webp`, bytes);
  console.log(`docs/images/console-${name}.webp: ${bytes.length} bytes`);
  await context.close();
}

const [server, browser] = await Promise.all([serve(), launch()]);
try {
  await mkdir(folder, { recursive: true });
  await fill(server.base);
  await work(server.base);
  for (const picture of pictures) await take(browser, server.base, picture);
} finally {
  await Promise.all([browser.close(), server.end()]);
}
