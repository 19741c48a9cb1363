// Asks the server for its figures each second, while the page is visible.
import { effect, signal } from "@preact/signals";
import { ask } from "../api.js";
import { codeOf } from "../parts/notice.js";
import { place } from "../router.js";
import { closed, user, wanted } from "../session.js";
import { merge, newer, type Points } from "../parts/points.js";

export interface Database {
  reachable: boolean;
  version?: string;
  latency_us?: number;
  size_bytes?: number;
  wal_bytes_per_second?: number;
  standbys: number;
  connections: number;
  max_connections: number;
}

export interface Overview extends Worst {
  version?: string;
  node?: string;
  started: string;
  closed: boolean;
  points: Points;
  database?: Database;
}

/** The group with the most to read, and the queue in which a message has waited the longest. */
export interface Worst {
  group?: { stream: string; group: string; lag: number };
  queue?: { queue: string; ready: number; dead: number; oldest_ms: number; paused: boolean };
}

export const overview = signal<Overview | undefined>(undefined);
export const points = signal<Points>({ time: [] });
/** The servers that have answered lately: with a load balancer, another one may answer each time. */
export const servers = signal<string[]>([]);
/** Why there are no figures. */
export const trouble = signal<unknown>(undefined);

const second = 1000;

/** Asks from now on: at once when another user has signed in, or the page is visible again. */
export function poll(): void {
  let turn = 0;
  effect(() => {
    void user.value;
    if (wanted.value) return;
    overview.value = undefined;
    points.value = { time: [] };
    told.clear();
    trouble.value = undefined;
    const mine = ++turn;
    void follow(() => mine === turn && !wanted.peek());
  });
}

async function follow(still: () => boolean): Promise<void> {
  while (still()) {
    await visible();
    const began = Date.now();
    try {
      const now = await ask<Overview>(`overview?after=${after()}${place.peek().parts.length ? "" : "&worst=true"}`);
      if (still()) take(now);
    } catch (error) {
      if (!still()) return;
      trouble.value = error;
      if (codeOf(error) === "forbidden") {
        closed.value = true;
        return;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(began + second - Date.now(), second / 4)));
  }
}

/** What a server has told, and when. */
interface Told {
  now: Overview;
  points: Points;
  at: number;
}

const told = new Map<string, Told>();
let shown = "";

/** How long a server is shown that does not answer any more, while another one does. */
const patience = 5 * second;

/** The time after which points are asked for: nobody knows which server will answer. */
const after = () => Math.min(...[...told.values()].map(({ points }) => points.time.at(-1) ?? 0), told.size ? Infinity : 0);

/** Keeps the points of each server, and shows those of one: the chosen one, or else the first, as long as it answers. */
export function take(now: Overview, chosen = place.peek().query.get("node"), at = Date.now()): void {
  trouble.value = undefined;
  closed.value = now.closed;
  const name = now.node ?? now.started;
  const before = told.get(name);
  for (const [other, { at: seen }] of told) if (at - seen > patience) told.delete(other);
  // The points of a server that has begun anew, or is another one, follow with the next request, with all that it has.
  const its = before?.now.started === now.started ? merge(before.points, newer(now.points, before.points.time.at(-1) ?? 0)) : told.size ? { time: [] } : now.points;
  told.set(name, { now, points: its, at });
  if (chosen && told.has(chosen)) shown = chosen;
  if (!told.has(shown)) shown = name;
  const one = told.get(shown)!;
  servers.value = [...told.keys()].sort();
  // The worst of the cluster are the same for all: the newest answer counts.
  overview.value = { ...one.now, group: now.group, queue: now.queue } as Overview;
  points.value = one.points;
}

/** Waits until the page can be seen: nobody looks at a hidden one. */
function visible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(), { once: true }));
}
