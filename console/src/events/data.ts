// Reads events, and remembers the tags that they have.
import { signal } from "@preact/signals";
import type { QueryItem, StoredEvent } from "tidewire";
import { ask, text } from "../api.js";
import { at, compact, parse } from "../format/json.js";
import { useLoad } from "../parts/load.js";
import { closed } from "../session.js";

/** An event as the console shows it: its data as they are written. */
export interface Shown {
  position: number;
  time: string;
  type: string;
  tags: readonly string[];
  id: string | undefined;
  payload: string | Uint8Array;
}

/** How many events a page has. */
export const pageSize = 50;

/** The items of an address, or undefined if it has others. An empty item is one that is not filled in yet. */
export function itemsOf(query: string | null): QueryItem[] | undefined {
  if (!query) return [];
  const texts = (list: unknown) => list === undefined || (Array.isArray(list) && list.every((one) => typeof one === "string"));
  try {
    const items = JSON.parse(query);
    if (Array.isArray(items) && items.every((item) => item && typeof item === "object" && texts(item.types) && texts(item.tags))) return items.map(({ types, tags }) => filled(types, tags));
  } catch {
    // It is no JSON.
  }
  return undefined;
}

/** An item without empty lists. */
export const filled = (types: readonly string[] = [], tags: readonly string[] = []): QueryItem => ({ ...(types.length && { types: [...types] }), ...(tags.length && { tags: [...tags] }) });

/** The items that select something. */
export const selecting = (items: readonly QueryItem[]): QueryItem[] => items.filter(({ types, tags }) => types || tags);

/** Whether an event matches an item. */
export const matches = ({ types, tags = [] }: QueryItem, event: { type: string; tags: readonly string[] }): boolean =>
  (!types || types.includes(event.type)) && tags.every((tag) => event.tags.includes(tag));

/** The tags and types of the events that the page has read, by store, of which the latest are kept. */
export const seen = signal<{ store: string; tags: string[]; types: string[] }>({ store: "", tags: [], types: [] });
const most = 1000;

export function remember(store: string, events: readonly { type: string; tags: readonly string[] }[]): void {
  const before = seen.peek().store === store ? seen.peek() : { tags: [], types: [] };
  const tags = [...new Set([...before.tags, ...events.flatMap((event) => event.tags)])];
  const types = [...new Set([...before.types, ...events.map(({ type }) => type)])];
  if (seen.peek().store !== store || tags.length + types.length > before.tags.length + before.types.length) seen.value = { store, tags: tags.slice(-most), types: types.slice(-most) };
}

/** An event as it is shown. Its data are those of `exact`, which has them as they are written. */
export function show(event: StoredEvent, exact: string | undefined = event.data === undefined ? undefined : JSON.stringify(event.data)): Shown {
  const { position, time, type, tags, id, data_base64: bytes } = event;
  return { position, time, type, tags, id, payload: bytes === undefined ? exact ?? "" : Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)) };
}

/** The events of an answer. */
export function shown(answer: string): Shown[] {
  const raw: StoredEvent[] = JSON.parse(answer).events;
  const exact = at(parse(answer), "events");
  return raw.map((event, i) => {
    const data = at(at(exact, i), "data");
    return show(event, data && compact(data));
  });
}

/** Which of the events that match are read. */
export interface Span {
  after?: number | undefined;
  before?: number | undefined;
  limit?: number;
  backwards?: boolean;
}

const asked = (store: string, items: readonly QueryItem[], span: Span, signal?: AbortSignal) =>
  text("events/query", { method: "POST", body: { store, query: { items }, limit: pageSize, ...span }, ...(signal && { signal }) });

/** Reads events. */
export async function read(store: string, items: readonly QueryItem[], span: Span, signal?: AbortSignal): Promise<Shown[]> {
  const events = shown(await asked(store, items, span, signal));
  remember(store, events);
  return events;
}

/** The position of the newest event that matches, or 0. */
export const newest = async (store: string, items: readonly QueryItem[], signal?: AbortSignal): Promise<number> =>
  (await read(store, items, { backwards: true, limit: 1 }, signal))[0]?.position ?? 0;

/** How many events match the query, and each item, up to a position. Without counts they are not counted. */
export interface Counted {
  after: number;
  /** How many times there was something new. */
  turn: number;
  counts?: number[];
  /** There are more events, which are counted soon. */
  more: boolean;
}

/** Counts all, for each of the items alone if there are several. */
export async function count(store: string, items: readonly QueryItem[], signal: AbortSignal): Promise<Counted> {
  const queries = [{ items }, ...(items.length > 1 ? items.map((item) => ({ items: [item] })) : [])];
  const { counts, condition } = await ask<{ counts: number[]; condition: { after: number } }>("events/project", { method: "POST", body: { store, queries }, signal });
  return { after: condition.after, turn: 0, counts, more: false };
}

/** Counts those that have come since. Reading these is cheap; counting all again is not. */
export async function countOn(store: string, items: readonly QueryItem[], before: Counted, signal: AbortSignal): Promise<Counted> {
  const { events } = JSON.parse(await asked(store, items, { after: before.after, limit: 1000 }, signal)) as { events: StoredEvent[] };
  if (!events.length) return { ...before, more: false };
  remember(store, events);
  const added = (i: number) => (i ? events.filter((event) => matches(items[i - 1]!, event)).length : events.length);
  return { after: events.at(-1)!.position, turn: before.turn + 1, more: events.length === 1000, ...(before.counts && { counts: before.counts.map((n, i) => n + added(i)) }) };
}

/** What the user may do with a store: query all events, and append, at least events with these tags. */
export interface May {
  query: boolean;
  append: boolean;
}

export function useMay(store: string, tags: readonly string[]): May | undefined {
  return useLoad(async (signal): Promise<May | undefined> => {
    if (closed.value === undefined) return undefined;
    if (!closed.value) return { query: true, append: true };
    const right = { kind: "events", name: store };
    const rights = [{ verb: "query", ...right }, { verb: "append", ...right }, { verb: "append", ...right, tags }];
    const { allowed } = await ask<{ allowed: boolean[] }>("rights", { method: "POST", body: { rights }, signal });
    return { query: allowed[0]!, append: !!allowed[1] || !!allowed[2] };
  }, [store, tags, closed.value]).value;
}

/** Types that begin with a text: all that there are, or those that the page has seen. */
export function useTypes(store: string, prefix: string, may: May | undefined): string[] {
  const { value } = useLoad(async (signal) => {
    if (!may?.query) return undefined;
    const query = new URLSearchParams({ store, prefix, limit: "50" });
    return (await ask<{ types: string[] }>(`events/types?${query}`, { signal })).types;
  }, [store, prefix, may?.query]);
  return value ?? (seen.value.store === store ? seen.value.types : []);
}
