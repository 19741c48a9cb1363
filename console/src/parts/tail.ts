// Follows a stream, or a query of events. One that is faster than a reader can see is shown in parts, and says what it leaves out.
import { signal } from "@preact/signals";
import { HistoryLost } from "tidewire";

/** A subscription, whose messages come in pages. */
export interface Followed<T> {
  ready: Promise<void>;
  readonly position: number | undefined;
  pages(): AsyncIterable<readonly T[]>;
  close(): void;
}

/** What is followed. */
export interface Source<T, Raw = unknown> {
  /** Subscribes after a position, or at the end. `gap` is told the oldest position if those before were dropped. */
  open(after: number | undefined, gap: (oldest: number) => void): Followed<Raw>;
  show(raw: Raw): T;
  /** The last position; undefined if none is to be left out. */
  head?: () => Promise<number>;
  /** The position of the end, if a subscription needs it. */
  end?: () => Promise<number>;
}

/** How many messages are shown, and how many positions the view may have still to read before it goes on at the end. */
const rows = 100;
const mostUnread = 5_000;
/** How often the view changes, in milliseconds: less often when nobody could read along. */
const pauseAfter = (messages: number) => (messages < rows ? 100 : 400);

export interface TailState {
  name: "starting" | "live" | "paused" | "ended";
  error?: unknown;
}

/** The part that is shown while it is followed, the newest message first. */
export class Tail<T extends { position: number }, Raw> {
  readonly messages = signal<T[]>([]);
  readonly state = signal<TailState>({ name: "starting" });
  /** Messages that came in the last second, all that came, and how many positions were left out. */
  readonly rate = signal(0);
  readonly count = signal(0);
  readonly skipped = signal(0);
  private subscription: Followed<Raw> | undefined;
  private position: number | undefined;
  private turn = 0;
  private second = { began: 0, count: 0 };
  private timer = 0;

  constructor(private readonly source: Source<T, Raw>) {
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
    try {
      if (this.source.end) this.position ??= await this.source.end();
      if (mine !== this.turn) return;
      const subscription = this.source.open(this.position, (oldest) => this.left(oldest - 1));
      this.subscription = subscription;
      await subscription.ready;
      if (mine !== this.turn) return;
      this.position ??= subscription.position;
      this.state.value = { name: "live" };
      for await (const page of subscription.pages()) {
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

  private take(page: readonly Raw[]): void {
    const fresh = page.slice(-rows).map((raw) => this.source.show(raw));
    this.position = fresh.at(-1)!.position;
    this.count.value += page.length;
    this.second.count += page.length;
    this.messages.value = [...fresh.reverse(), ...this.messages.value].slice(0, rows);
  }

  /** Once a second: the rate, and whether the view has too many positions still to read. */
  private async tick(mine: number): Promise<void> {
    const now = performance.now();
    this.rate.value = Math.round((this.second.count / (now - this.second.began)) * 1000);
    this.second = { began: now, count: 0 };
    if (this.rate.value < rows || !this.source.head) return;
    const head = await this.source.head().catch(() => 0);
    if (mine !== this.turn || this.position === undefined || head - this.position < mostUnread) return;
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
