// Reads rooms, and acts on them.
import { ask, part } from "../api.js";
import { full } from "../format/numbers.js";
import type { Refusals, Right } from "../rights.js";

/** A room in the list. */
export interface Listed {
  room: string;
  /** Connections in it. */
  count: number;
  /** How many chats it has had. */
  chats: number;
  stored: boolean;
}

export interface Rooms {
  rooms: Listed[];
  truncated?: boolean;
  silent?: string[];
}

export interface Members {
  count: number;
  members: string[];
  stored: boolean;
  truncated?: boolean;
  silent?: string[];
}

/** A chat of a stored room. */
export interface Said {
  user?: string;
  text: string;
  time?: string;
  position?: number;
}

const verbs = ["join", "chat", "history", "presence", "admin"] as const;
export type Rights = Refusals<(typeof verbs)[number]>;

/** The rights on a room. */
export const rights = (room: string) => Object.fromEntries(verbs.map((verb) => [verb, `${verb} room:${room}`])) as Record<(typeof verbs)[number], Right>;

export const path = (room: string, rest: string) => `rooms/${part(room)}/${rest}`;

/** A list of rooms, and when it came. */
export interface Look {
  at: number;
  rooms: Listed[];
}

/** Chats a second of each room between two lists. A room that is new, or has begun anew, has had all of its chats since the list before. */
export function ratesOf(before: Look | undefined, now: Look): Map<string, number> {
  if (!before || now.at <= before.at) return new Map();
  const had = new Map(before.rooms.map(({ room, chats }) => [room, chats]));
  return new Map(now.rooms.map(({ room, chats }) => {
    const from = had.get(room) ?? 0;
    return [room, ((chats - (chats < from ? 0 : from)) * 1000) / (now.at - before.at)];
  }));
}

/** Rooms in the order in which they were shown before, and then the new ones: so no row changes its place. */
export function inOrder(before: string[], rooms: Listed[]): Listed[] {
  const rank = new Map(before.map((room, i) => [room, i]));
  const at = ({ room }: Listed) => rank.get(room) ?? before.length;
  return [...rooms].sort((a, b) => at(a) - at(b));
}

/** Says which servers did not answer. */
export const silence = (silent: string[] | undefined, what: string): string =>
  silent ? `${full(silent.length)} ${silent.length === 1 ? "server" : "servers"} did not answer: ${what}` : "";

/** A page of the chats of a stored room, the last ones before a position. */
export const history = (room: string, before: number | undefined, signal: AbortSignal): Promise<{ chats: Said[] }> =>
  ask(path(room, `chats?last=${pageSize}${before === undefined ? "" : `&before=${before}`}`), { signal });

export const pageSize = 50;
