import type { Core } from "./core.js";
import { Closed, errorOf, type Problem } from "./errors.js";
import { Inbox } from "./inbox.js";
import type { Answer, CallOptions } from "./request.js";
import { Standing } from "./standing.js";

/** What came for a feed, in its order: a message, how far the server has read, or the end of it. */
export type Item<Raw> = { raw: Raw } | { upTo: number; partition?: number } | { stop: Problem };

/**
 * An iteration over messages that the server sends. It lives until the program ends it, over all reconnects.
 * At most as many messages as there are credits wait here: the server sends no more before the program takes some.
 */
export abstract class Feed<Raw extends { position: number }, T> extends Standing implements AsyncIterableIterator<T> {
  /** Is fulfilled when the server has the subscription. Then `position` is known. */
  ready!: Promise<void>;
  /** @internal */
  protected readonly inbox = new Inbox<Item<Raw>, T>(() => this.now());
  private at: number | undefined;
  private name: string;
  private used = 0;

  /** @internal */
  constructor(core: Core, private readonly credits: number, options: CallOptions) {
    const name = core.name();
    super(core, `feed ${name}`, options);
    this.name = name;
    core.feeds.set(name, this);
  }

  /** Begins. It is the last line of the constructor of a subclass. @internal */
  protected open(): void {
    this.ready = this.begin();
    // The iteration has the same error.
    this.ready.catch(() => {});
  }

  /** The fields of the request, without its start. @internal */
  protected abstract fields(): object;
  /** Where it starts at first. @internal */
  protected abstract start(): object;
  /** Makes what the program gets. It may skip the message, with undefined. @internal */
  protected abstract make(raw: Raw): T | Promise<T | undefined> | undefined;

  /** The position up to which the program has everything. */
  get position(): number | undefined {
    return this.at;
  }

  /** @internal */
  protected set position(at: number) {
    this.at = at;
  }

  /** @internal */
  protected request(): object {
    const start = this.at === undefined ? this.start() : { after: this.at };
    return { type: "subscribe", subscription: this.name, credits: this.credits, ...this.fields(), ...start };
  }

  /** @internal */
  protected answered({ position }: Answer): void {
    if (position !== undefined) this.pass({ upTo: position });
  }

  /** Subscribes again, after what the program has. @internal */
  protected override again(): void {
    const { core, inbox } = this;
    inbox.items = [];
    this.used = 0;
    // Messages of the subscription before have its name.
    core.feeds.delete(this.name);
    core.feeds.set((this.name = core.name()), this);
    super.again();
  }

  /** @internal */
  take(message: any): void {
    if (message.type === "position") this.put({ upTo: message.position, partition: message.partition });
    else if (message.type === "error") this.put({ stop: message });
    else this.put({ raw: message.event ?? message });
  }

  /** @internal */
  protected put(item: Item<Raw>): void {
    if ("upTo" in item && !this.inbox.items.length) this.pass(item);
    else this.inbox.push(item);
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
    for (let item; (item = this.inbox.items.shift()); ) {
      if ("raw" in item) {
        this.use(1);
        this.taken(item.raw);
        const made = this.make(item.raw);
        if (made !== undefined) return made;
      } else if ("upTo" in item) {
        this.pass(item);
      } else {
        this.trouble(errorOf(item.stop));
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
    return this.inbox.next();
  }

  /** @internal */
  protected ending(error: unknown): void {
    this.core.feeds.delete(this.name);
    this.inbox.end(error);
  }

  /** @internal */
  override ended(error?: Error): void {
    this.inbox.items = [];
    this.end(error);
  }

  /** @internal */
  protected halt(error?: unknown): void {
    if (this.over) return;
    this.inbox.items = [];
    this.core.send({ type: "unsubscribe", subscription: this.name });
    this.end(error);
  }

  /** Ends the subscription. Messages that have arrived and were not taken are discarded. */
  close(): void {
    this.abandon(new Closed("the subscription was ended"));
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
