// Follows a stream. A stream that is faster than a reader can see is shown in parts, and says what it leaves out.
import { signal } from "@preact/signals";
import { HistoryLost, type Codec, type Message, type Subscription } from "tidewire";
import { ask, part } from "../api.js";
import { client } from "../session.js";
import type { Info, Shown } from "./messages.js";

/** Payloads as they come. */
export const raw: Codec<string | Uint8Array> = { encode: (value) => value, decode: (payload) => payload };

/** How many messages are shown, and how far the view may be behind the stream before it goes on at the end. */
const rows = 100;
const behindMost = 5_000;
/** How often the view changes, in milliseconds: less often when nobody could read along. */
const pauseAfter = (messages: number) => (messages < rows ? 100 : 400);

export interface TailState {
  name: "starting" | "live" | "paused" | "ended";
  error?: unknown;
}

/** The part of a stream that is shown while it is followed, the newest message first. */
export class Tail {
  readonly messages = signal<Shown[]>([]);
  readonly state = signal<TailState>({ name: "starting" });
  /** Messages that came in the last second, all that came, and how many positions were left out. */
  readonly rate = signal(0);
  readonly count = signal(0);
  readonly skipped = signal(0);
  private subscription: Subscription<string | Uint8Array> | undefined;
  private position: number | undefined;
  private turn = 0;
  private second = { began: 0, count: 0 };
  private timer = 0;

  constructor(private readonly stream: string, private readonly key: string) {
    this.resume();
  }

  /** Goes on after the last message that was shown, or with the next one. */
  resume(): void {
    const mine = ++this.turn;
    this.state.value = { name: "starting" };
    this.second = { began: performance.now(), count: 0 };
    void this.run(mine);
    clearInterval(this.timer);
    this.timer = window.setInterval(() => void this.tick(mine), 1000);
  }

  pause(): void {
    this.end({ name: "paused" });
  }

  close(): void {
    this.end({ name: "ended" });
  }

  private end(state: TailState): void {
    this.turn++;
    clearInterval(this.timer);
    this.subscription?.close();
    this.rate.value = 0;
    this.state.value = state;
  }

  private async run(mine: number): Promise<void> {
    const start = this.position === undefined ? { from: "end" as const } : { after: this.position };
    const subscription = client().stream(this.stream, { codec: raw }).subscribe({
      ...start, credits: 1000, onGap: ({ oldest }) => this.left(oldest - 1), ...(this.key && { keys: [this.key] }),
    });
    this.subscription = subscription;
    try {
      await subscription.ready;
      if (mine !== this.turn) return;
      this.position ??= subscription.position;
      this.state.value = { name: "live" };
      for await (const page of subscription.pages(1000)) {
        if (mine !== this.turn) return;
        this.take(page);
        await new Promise((resolve) => setTimeout(resolve, pauseAfter(page.length)));
      }
    } catch (error) {
      if (mine !== this.turn) return;
      if (error instanceof HistoryLost) this.position = undefined; // there is nothing to go on after
      this.end({ name: "ended", error });
    }
  }

  private take(page: readonly Message<string | Uint8Array>[]): void {
    const fresh: Shown[] = [];
    for (const { position, time, key, headers, value } of page.slice(-rows)) {
      fresh.push({ position, time, key, headers: headers && JSON.stringify(headers), payload: value });
    }
    this.position = fresh.at(-1)!.position;
    this.count.value += page.length;
    this.second.count += page.length;
    this.messages.value = [...fresh.reverse(), ...this.messages.value].slice(0, rows);
  }

  /** Once a second: the rate, and whether the view is too far behind. */
  private async tick(mine: number): Promise<void> {
    const now = performance.now();
    this.rate.value = Math.round((this.second.count / (now - this.second.began)) * 1000);
    this.second = { began: now, count: 0 };
    if (this.rate.value < rows || this.key) return;
    const { head } = await ask<Info>(`streams/${part(this.stream)}`).catch(() => ({ head: 0 }));
    if (mine !== this.turn || this.position === undefined || head - this.position < behindMost) return;
    this.subscription?.close();
    this.left(head - rows); // the newest ones are shown, also if none comes after them
    const next = ++this.turn;
    clearInterval(this.timer);
    this.timer = window.setInterval(() => void this.tick(next), 1000);
    void this.run(next);
  }

  /** Goes on after a position, and counts what it leaves out. */
  private left(position: number): void {
    if (this.position !== undefined) this.skipped.value += position - this.position;
    this.position = position;
  }
}
