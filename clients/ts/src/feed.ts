import type { Core, FeedTarget } from "./core.js";
import { jitter } from "./duration.js";
import { Closed, errorOf, TidewireError, type Problem } from "./errors.js";
import { Fifo } from "./fifo.js";
import type { Answer, CallOptions } from "./request.js";

/** What came for a feed, in its order: a message, how far the server has read, or the end of it. @internal */
export type Item<Raw> = { raw: Raw } | { upTo: number; partition?: number } | { stop: Problem };

const lostWithConnection = () => new TidewireError({ code: "connection_lost", message: "the connection has ended", retryable: true });

/**
 * An iteration over messages that the server sends. It lives until the program ends it, over all reconnects.
 * At most as many messages as there are credits wait here: the server sends no more before the program takes some.
 */
export abstract class Feed<Raw extends { position: number }, T> implements AsyncIterableIterator<T>, FeedTarget {
  /** Is fulfilled when the server has the subscription. Then `position` is known. */
  ready!: Promise<void>;
  /** @internal */
  protected items = new Fifo<Item<Raw>>();
  /** @internal */
  protected over = false;
  private error: unknown;
  private at: number | undefined;
  /** @internal */
  protected name: string;
  private live = false;
  private used = 0;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private arrived: (() => void) | undefined;
  private arrival: Promise<void> | undefined;
  private readonly unwatch: () => void;
  private readonly first = new AbortController();

  /** @internal */
  constructor(protected readonly core: Core, protected readonly credits: number, private readonly options: CallOptions) {
    this.name = core.name();
    const { signal } = options;
    const stop = () => this.close();
    signal?.addEventListener("abort", stop);
    this.unwatch = () => signal?.removeEventListener("abort", stop);
  }

  /** Begins. It is the last line of the constructor of a subclass. @internal */
  protected open(): void {
    this.core.feeds.set(this.name, this);
    this.core.resumed.add(this);
    this.ready = this.begin();
    this.ready.catch(() => {});
    if (this.options.signal?.aborted) this.close();
  }

  /** The fields of the request, without its start. @internal */
  protected abstract fields(): object;
  /** Where it starts at first. @internal */
  protected abstract start(): object;
  /** Makes what the program gets. It may skip the message, with undefined. @internal */
  protected abstract make(raw: Raw): T | Promise<T | undefined> | undefined;
  /** Goes on in another way than with the error, if there is one. @internal */
  protected abstract recover(error: TidewireError): boolean;

  /** The position up to which the program has everything. */
  get position(): number | undefined {
    return this.at;
  }

  /** @internal */
  protected set position(at: number) {
    this.at = at;
  }

  private request(): object {
    const start = this.at === undefined ? this.start() : { after: this.at };
    return { type: "subscribe", subscription: this.name, credits: this.credits, ...this.fields(), ...start };
  }

  private async begin(): Promise<void> {
    const { timeout } = this.options;
    for (;;) {
      try {
        return this.subscribed(await this.core.outbox.ask({ timeout: timeout!, signal: this.first.signal }, `feed ${this.name}`, this.request()));
      } catch (error) {
        if (!this.over && error instanceof TidewireError && this.recover(error)) continue;
        this.end(error);
        throw error;
      }
    }
  }

  private subscribed({ position }: Answer): void {
    this.live = true;
    this.failures = 0;
    if (position !== undefined) this.at = Math.max(this.at ?? 0, position);
  }

  /** Subscribes again, after what the program has. */
  private again(): void {
    clearTimeout(this.timer);
    if (this.over) return;
    this.live = true;
    this.items.drain();
    this.used = 0;
    this.core.feeds.delete(this.name);
    this.core.feeds.set((this.name = this.core.name()), this);
    if (!this.core.up) return;
    const name = this.name;
    this.core.outbox
      .call<Answer>(
        { timeout: 0 },
        {
          lane: "",
          mode: "bound",
          write: ({ id }) => JSON.stringify({ id, ...this.request() }),
          read: (answer) => answer,
          lost: lostWithConnection,
        },
      )
      .then(
        (answer) => this.subscribed(answer),
        (error) => {
          if (this.core.up && this.name === name) this.failed(error);
        },
      );
  }

  /** Decides what follows after an error of the server. */
  private failed(error: TidewireError): void {
    if (this.over) return;
    if (this.recover(error)) this.again();
    else if (error.retryable) this.timer = setTimeout(() => this.again(), error.retryAfter ?? jitter(this.failures++));
    else this.end(error);
  }

  /** @internal */
  up(): void {
    if (this.live) this.again();
  }

  /** @internal */
  down(): void {
    clearTimeout(this.timer);
  }

  /** @internal */
  ended(error?: Error): void {
    this.items.drain();
    this.end(error);
  }

  /** @internal */
  take(message: any): void {
    if (message.type === "position") this.put({ upTo: message.position, partition: message.partition });
    else if (message.type === "error") this.put({ stop: message });
    else this.put({ raw: message.type === "event" ? message.event : message });
  }

  /** @internal */
  protected put(item: Item<Raw>): void {
    if (this.over) return;
    if ("upTo" in item && this.items.length === 0) return this.pass(item);
    this.items.push(item);
    this.wake();
  }

  private wake(): void {
    this.arrived?.();
    this.arrived = this.arrival = undefined;
  }

  /** The server has read up to here, and has sent everything before. @internal */
  protected pass(item: { upTo: number; partition?: number }): void {
    this.at = Math.max(this.at ?? 0, item.upTo);
  }

  /** Counts messages that the program has used, and grants the server as many again. @internal */
  protected use(n: number): void {
    this.used += n;
    if (this.used * 2 < this.credits) return;
    this.core.send({ type: "credit", subscription: this.name, n: this.used });
    this.used = 0;
  }

  /** The next message that has arrived. @internal */
  protected now(): T | Promise<T | undefined> | undefined {
    for (let item; (item = this.items.shift()); ) {
      if ("raw" in item) {
        this.use(1);
        this.taken(item.raw);
        const made = this.make(item.raw);
        if (made !== undefined) return made;
      } else if ("upTo" in item) {
        this.pass(item);
      } else {
        this.failed(errorOf(item.stop));
      }
    }
    return undefined;
  }

  /** The program has the message. @internal */
  protected taken(raw: Raw): void {
    this.at = raw.position;
  }

  /** The next message. */
  next(): Promise<IteratorResult<T, undefined>> {
    const item = this.now();
    if (item instanceof Promise) return item.then((value) => (value === undefined ? this.next() : { done: false, value }));
    if (item !== undefined) return Promise.resolve({ done: false, value: item });
    if (this.over) return this.last();
    this.arrival ??= new Promise((resolve) => (this.arrived = resolve));
    return this.arrival.then(() => this.next());
  }

  private last(): Promise<IteratorResult<T, undefined>> {
    const { error } = this;
    this.error = undefined;
    return error === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(error);
  }

  /** Ends the iteration, after the messages that have arrived. @internal */
  protected end(error?: unknown): void {
    if (this.over) return;
    this.over = true;
    this.error = error;
    this.unwatch();
    clearTimeout(this.timer);
    this.core.feeds.delete(this.name);
    this.core.resumed.delete(this);
    this.wake();
  }

  /** Ends the subscription. Messages that have arrived and were not taken are discarded. */
  close(): void;
  /** @internal */
  close(error: unknown): void;
  close(error?: unknown): void {
    if (this.over) return;
    this.items.drain();
    this.end(error);
    this.first.abort(new Closed("the subscription was ended"));
    this.core.send({ type: "unsubscribe", subscription: this.name });
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
