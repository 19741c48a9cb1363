// Reads queues and their dead letters, and acts on them.
import { ask, part, text } from "../api.js";
import type { Job as AnyJob } from "../parts/jobs.js";
import type { Refusals, Right } from "../rights.js";
import { shown, type Shown } from "../streams/messages.js";

/** The numbers of a queue. */
export interface Stats {
  queue: string;
  ready: number;
  leased: number;
  delayed: number;
  dead: number;
  head: number;
  oldest_ms: number;
  nodes: number;
  paused: boolean;
}

export interface Options {
  max_attempts: number;
  retry_min_ms: number;
  retry_max_ms: number;
  priorities?: number;
  partitions?: number;
}

/** The rights that acts on a queue need, and those of them that the user does not have. */
export const rights = (queue: string): Record<"admin" | "enqueue", Right> => ({ admin: `admin queue:${queue}`, enqueue: `enqueue queue:${queue}` });
export type Rights = Refusals<"admin" | "enqueue">;

/** A dead letter. */
export interface Letter extends Shown {
  attempts: number;
  reason: string | undefined;
  died: string | undefined;
}

/** What selects dead letters, as the parameters of the API have it. A field that is missing selects all. */
export type Filter = Partial<Record<(typeof fields)[number], string>>;
export const fields = ["reason", "key", "min_attempts", "max_attempts", "since", "until"] as const;

export type Act = "redrive" | "purge";

export interface Job extends AnyJob {
  act: Act;
}

export interface LetterPage {
  letters: Letter[];
  /** Where the next page begins; undefined after the last one. */
  next: number | undefined;
}

export const path = (queue: string, rest = "") => `queues/${part(queue)}${rest}`;

export const peek = async (queue: string, signal: AbortSignal): Promise<Shown[]> => shown(await text(path(queue, "/messages?limit=50"), { signal }));

/** A page of dead letters. Where the server has found none yet and has not looked at all of them, it goes on. */
export async function deadPage(queue: string, filter: Filter, after: number, limit: number, signal?: AbortSignal): Promise<LetterPage> {
  for (;;) {
    const query = new URLSearchParams({ ...filter, after: String(after), limit: String(limit) });
    const page = lettersOf(await text(path(queue, `/dead?${query}`), signal && { signal }));
    if (page.letters.length || page.next === undefined) return page;
    after = page.next;
  }
}

/** The dead letters of an answer. */
export function lettersOf(answer: string): LetterPage {
  const { dead, next }: { dead: Letter[]; next?: number } = JSON.parse(answer);
  const letters = shown(answer, "dead").map((m, i) => ({ ...m, attempts: dead[i]!.attempts, reason: dead[i]!.reason, died: dead[i]!.died }));
  return { letters, next };
}

/** Above so many, an act wants the name of the queue. */
export const many = 1000;

/** How many dead letters match: `more` says that there are more than it has counted. */
export async function count(queue: string, filter: Filter, signal: AbortSignal, read = deadPage): Promise<{ count: number; more: boolean }> {
  let found = 0;
  for (let after = 0; ; ) {
    const { letters, next } = await read(queue, filter, after, many, signal);
    found += letters.length;
    if (next === undefined || found > many) return { count: found, more: next !== undefined };
    after = next;
  }
}

/** Dead letters with the same reason. */
export interface Reason {
  reason: string | undefined;
  count: number;
  last: string | undefined;
}

export interface Reasons {
  groups: Reason[];
  /** How many dead letters were read, and whether there are more. */
  read: number;
  more: boolean;
}

/** How many pages of 1,000 are read to group them. */
const pagesMost = 20;

/** Groups dead letters by reason, the most frequent first. */
export async function reasonsOf(queue: string, filter: Filter, signal: AbortSignal, progress: (read: number) => void, page = deadPage): Promise<Reasons> {
  const groups = new Map<string | undefined, Reason>();
  let read = 0;
  let after: number | undefined = 0;
  for (let i = 0; i < pagesMost && after !== undefined; i++) {
    const { letters, next }: LetterPage = await page(queue, filter, after, 1000, signal);
    for (const { reason, died } of letters) {
      const group = groups.get(reason) ?? { reason, count: 0, last: undefined };
      groups.set(reason, { reason, count: group.count + 1, last: group.last === undefined || (died !== undefined && died > group.last) ? died : group.last });
    }
    read += letters.length;
    after = next;
    progress(read);
  }
  return { groups: [...groups.values()].sort((a, b) => b.count - a.count), read, more: after !== undefined };
}

/** The filter as a body has it, whose numbers are numbers. */
export function bodyOf(filter: Filter): Record<string, string | number> {
  return Object.fromEntries(Object.entries(filter).map(([name, value]) => [name, name.endsWith("attempts") ? Number(value) : value]));
}

/** Redrives or purges the dead letters at these positions, and returns how many it has changed. */
export const change = (queue: string, act: Act, positions: number[]): Promise<{ count: number }> =>
  ask(path(queue, `/dead/${act}`), { method: "POST", body: { positions } });

/** Starts a job that redrives or purges all that match, so many in a second at most. */
export const start = (queue: string, act: Act, filter: Filter, perSecond?: number): Promise<Job> =>
  ask(path(queue, `/dead/${act}`), { method: "POST", body: { ...(Object.keys(filter).length ? { filter: bodyOf(filter) } : { all: true }), ...(perSecond && { per_second: perSecond }) } });

/** Removes a dead letter and enqueues a message, both or neither. */
export const replace = (queue: string, position: number, message: object): Promise<unknown> =>
  ask(path(queue, `/dead/${position}/replace`), { method: "POST", body: message });
