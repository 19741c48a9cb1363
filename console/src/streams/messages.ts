// Reads messages of a stream.
import { ask, Failure, part, text } from "../api.js";
import { bytes } from "tidewire";
import { at, compact, parse } from "../format/json.js";
import { client } from "../session.js";

/** A message as the console shows it: its headers as they are written. */
export interface Shown {
  position: number;
  time: string;
  key: string | undefined;
  headers: string | undefined;
  payload: string | Uint8Array;
}

interface Raw {
  position: number;
  time: string;
  key?: string;
  headers?: object;
  payload?: string;
  payload_base64?: string;
}

export interface Info {
  stream: string;
  keyed: boolean;
  partitions?: number;
  created: string;
  head: number;
}

/** How many messages a page has. */
export const pageSize = 50;

/** A page, and whether there may be more after it. */
export interface Page {
  messages: Shown[];
  full: boolean;
}

/** The messages of an answer, in the list of this name. */
export function shown(answer: string, list = "messages"): Shown[] {
  const raw: Raw[] = JSON.parse(answer)[list];
  const exact = raw.some((m) => m.headers) ? at(parse(answer), list) : undefined;
  return raw.map((m, i) => {
    const headers = m.headers && at(at(exact, i), "headers");
    return { position: m.position, time: m.time, key: m.key, headers: headers && compact(headers), payload: payloadOf(m) };
  });
}

const payloadOf = (m: Raw): string | Uint8Array =>
  m.payload_base64 === undefined ? m.payload ?? "" : Uint8Array.from(atob(m.payload_base64), (c) => c.charCodeAt(0));

/** A page of messages after a position. If some of them were dropped, it begins with the oldest. */
export async function pageAfter(stream: string, after: number, key: string, limit = pageSize, signal?: AbortSignal): Promise<Page> {
  const query = new URLSearchParams({ after: String(after), limit: String(limit) });
  if (key) query.set("key", key);
  try {
    const messages = shown(await text(`streams/${part(stream)}/messages?${query}`, signal && { signal }));
    return { messages, full: messages.length === limit };
  } catch (error) {
    if (error instanceof Failure && error.oldest !== undefined && error.oldest > after + 1) return pageAfter(stream, error.oldest - 1, key, limit, signal);
    throw error;
  }
}

/**
 * The last page of messages before a position. Positions have gaps, and a key may be rare: so it looks further and further back.
 * If it finds more than a page, the page has those that are nearest.
 */
export async function pageBefore(stream: string, before: number, key: string, signal?: AbortSignal, read = pageAfter): Promise<Page> {
  for (let back = pageSize; ; back *= 8) {
    const from = Math.max(before - 1 - back, 0);
    const found: Shown[] = [];
    for (let after = from; ; ) {
      const { messages, full } = await read(stream, after, key, 1000, signal);
      found.push(...messages.filter((m) => m.position < before));
      if (found.length > pageSize) found.splice(0, found.length - pageSize);
      const last = messages.at(-1);
      if (!full || !last || last.position >= before - 1) break;
      after = last.position;
    }
    if (found.length === pageSize || from === 0) return { messages: found, full: found.length === pageSize };
  }
}

/** The message at a position, or undefined. */
export async function messageAt(stream: string, position: number, signal: AbortSignal): Promise<Shown | undefined> {
  try {
    const { messages } = await pageAfter(stream, Math.max(position - 1, 0), "", 1, signal);
    return messages.find((m) => m.position === position);
  } catch (error) {
    if (error instanceof Failure && error.code === "history_lost") return undefined; // it is after the end
    throw error;
  }
}

/** The position after which the messages of a time begin. */
export async function positionAt(stream: string, time: string): Promise<number> {
  const subscription = client().stream(stream, { codec: bytes }).subscribe({ at: time, credits: 1 });
  try {
    await subscription.ready;
    return subscription.position ?? 0;
  } finally {
    subscription.close();
  }
}

export const info = (stream: string, signal?: AbortSignal): Promise<Info> => ask(`streams/${part(stream)}`, signal && { signal });
