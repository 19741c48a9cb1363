// Asks the server for its figures each second, while the page is visible.
import { effect, signal } from "@preact/signals";
import { ask } from "../api.js";
import { codeOf } from "../parts/notice.js";
import { closed, user, wanted } from "../session.js";
import { merge, type Points } from "../parts/points.js";

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

export interface Overview {
  version?: string;
  node?: string;
  started: string;
  closed: boolean;
  points: Points;
  database?: Database;
}

export const overview = signal<Overview | undefined>(undefined);
export const points = signal<Points>({ time: [] });
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
      take(await ask<Overview>(`overview?after=${points.peek().time.at(-1) ?? 0}`), still);
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

function take(now: Overview, still: () => boolean): void {
  if (!still()) return;
  const other = overview.peek() && overview.peek()!.started !== now.started;
  trouble.value = undefined;
  closed.value = now.closed;
  // A server that has begun anew, or another one of the cluster: its own points follow with the next request.
  points.value = other ? { time: [] } : merge(points.peek(), now.points);
  overview.value = now;
}

/** Waits until the page can be seen: nobody looks at a hidden one. */
function visible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(), { once: true }));
}
