// What several flows do, and where they look.
import { v1 } from "../server.js";
import { open } from "./browser.js";

/** A number that a browser rounds. */
export const big = "9007199254740993123";

/** Creates a stream with n messages, with keys a, b and c in turn. */
export async function fill(base, stream, n, options = { keyed: true }) {
  await v1(base, "POST", `streams/${stream}`, options);
  for (let i = 0; i < n; i += 100) {
    const messages = Array.from({ length: Math.min(100, n - i) }, (_, j) => ({ key: "abc"[(i + j) % 3], headers: { n: i + j }, payload: `{"n":${i + j},"big":${big}}` }));
    await v1(base, "POST", `streams/${stream}/messages`, { messages });
  }
}

/** The rows of a table of messages, and the positions in them. */
export const messageRows = (page) => page.locator("table.messages tbody tr");
export const positions = async (page) => (await page.locator("table.messages tbody th").allTextContents()).map((text) => Number(text.replace(",", "")));

/** Messages of a queue. */
export const messages = (n) => Array.from({ length: n }, (_, i) => ({ key: `k${i % 3}`, headers: { i }, payload: `{"n":${i},"big":${big}}` }));

/** Waits until a tile has a value. */
export const tile = (page, name, value) => page.locator(".tile", { has: page.locator("dt", { hasText: new RegExp(`^${name}$`) }) }).locator("dd").first().filter({ hasText: new RegExp(`^${value}$`) }).waitFor();

/** A page whose inspector is connected, and the types of the frames in its log. */
export async function connected(t, browser, base, path = "") {
  const page = await open(t, browser, base);
  await page.goto(`${base}/console/inspector${path}`);
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await page.getByText("Connected.").waitFor();
  return page;
}
export const types = (page) => page.locator("table.frames td.key").allTextContents();

/** The conversation in a room, and the names of its users. */
export const log = (page) => page.getByRole("log", { name: "Chats" });
export const users = (page) => page.getByRole("list", { name: "Users" }).locator("li > span").allTextContents();

/** Joins a room. */
export async function join(page, base, room, name) {
  await page.goto(`${base}/console/rooms/${room}`);
  await page.getByLabel("Your name").fill(name);
  await page.getByRole("button", { name: "Join" }).click();
  await page.getByText("You are in the room.").waitFor();
}

/** Chats, once or several times. */
export async function say(page, text, times = "") {
  await page.getByLabel("Times").fill(times);
  await page.getByLabel("Say").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}
