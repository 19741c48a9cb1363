import type { Codec } from "./codec.js";
import type { Core } from "./core.js";
import { later } from "./emitter.js";
import { Fenced, TooOld, type InvalidMessage, type TidewireError } from "./errors.js";
import { Feed, type Item } from "./feed.js";
import { decode, Message, type RawMessage } from "./message.js";
import { working, type Work } from "./otel.js";
import type { Answer, CallOptions } from "./request.js";

/** Messages that retention has dropped before the program could have them. */
export interface Gap {
  /** The first position that may still be kept: the subscription goes on there. */
  oldest: number;
  partition?: number;
}

/** Where a subscription begins, and which messages it has. It begins at the end, unless one of `after`, `at`, `from` and `group` is given. */
export interface SubscribeOptions extends CallOptions {
  /** After this position. 0 is the beginning. */
  after?: number;
  /** At this time. */
  at?: Date | string;
  /** At the oldest message that is kept, or with the next one. */
  from?: "start" | "end";
  /** After the committed offset of this group. */
  group?: string;
  /** The members of the group share the partitions of the stream. */
  share?: boolean;
  /** Only messages with one of these keys. */
  keys?: string[];
  /** Only messages that have all of these headers. */
  headers?: Record<string, string>;
  /** How many messages may wait in this library: 256 unless given. */
  credits?: number;
  /** What to do about messages that were dropped: `"skip"` goes on without them; a function is told, too. Without it the iteration ends with `TooOld`. */
  onGap?: "skip" | ((gap: Gap) => unknown);
  /** Is told of messages that the codec or schema refuses. Without it the iteration ends with `InvalidMessage`. */
  onInvalid?: (error: InvalidMessage) => unknown;
  /** With `share`: this client owns these partitions too. */
  onAssigned?: (partitions: number[]) => unknown;
  /** With `share`: this client does not own these partitions any more. */
  onRevoked?: (partitions: number[]) => unknown;
}

/** The messages of a stream: those that are stored, and then those to come. */
export class Subscription<T> extends Feed<RawMessage, Message<T>> {
  private readonly owned = new Set<number>();
  private readonly reached = new Map<number, number>();
  private work: Work | undefined;

  /** @internal */
  constructor(core: Core, readonly stream: string, private readonly codec: Codec<T>, private readonly o: SubscribeOptions) {
    super(core, o.credits ?? 256, o);
    this.open();
  }

  /** @internal */
  protected fields(): object {
    const { keys, headers, share, group } = this.o;
    return { stream: this.stream, keys, headers, ...(share && { share, group }) };
  }

  /** @internal */
  protected start(): object {
    const { after, at, from, group, share } = this.o;
    return share ? {} : { after, from, group, at: at instanceof Date ? at.toISOString() : at };
  }

  /** @internal */
  protected recover(error: TidewireError): boolean {
    if (!(error instanceof TooOld) || !this.o.onGap) return false;
    this.gap({ oldest: error.oldest });
    this.position = error.oldest - 1;
    return true;
  }

  private gap(gap: Gap): void {
    if (typeof this.o.onGap === "function") later(this.core.failed, this.o.onGap, gap);
  }

  /** @internal */
  override take(message: any): void {
    switch (message.type) {
      case "assigned":
        for (const partition of message.partitions) this.owned.add(partition);
        return later(this.core.failed, this.o.onAssigned, message.partitions);
      case "revoked":
        return this.revoked(message.partitions);
      case "parked":
        return this.parked(message);
      default:
        super.take(message);
    }
  }

  private revoked(partitions: number[]): void {
    for (const partition of partitions) this.owned.delete(partition);
    const lost = (item: Item<RawMessage>) => !("stop" in item) && partitions.includes(("raw" in item ? item.raw : item).partition!);
    const { items } = this.inbox;
    this.inbox.items = items.filter((item) => !lost(item));
    this.use(items.filter((item) => "raw" in item && lost(item)).length);
    later(this.core.failed, this.o.onRevoked, partitions);
  }

  private parked(message: any): void {
    const { partition, oldest } = message;
    if (!this.o.onGap) return this.put({ stop: { ...message, message: `messages before ${oldest} were dropped` } });
    this.gap({ oldest, partition });
    this.commit(oldest - 1, partition).catch((error) => {
      if (!(error instanceof Fenced)) this.core.failed(error);
    });
  }

  /** @internal */
  override down(): void {
    super.down();
    if (!this.o.share) return;
    this.reached.clear();
    if (this.owned.size) this.revoked([...this.owned]);
  }

  /** @internal */
  protected override pass(item: { upTo: number; partition?: number }): void {
    if (this.o.share) this.reached.set(item.partition ?? 0, item.upTo);
    else super.pass(item);
  }

  /** @internal */
  protected override taken(raw: RawMessage): void {
    if (this.o.share) this.reached.set(raw.partition ?? 0, raw.position);
    else super.taken(raw);
  }

  /** @internal */
  protected make(raw: RawMessage): Message<T> | Promise<Message<T> | undefined> | undefined {
    const message = (value: T) => new Message(value, raw.position, raw.time, raw.key, raw.headers, raw.partition);
    this.work = working("receive", this.stream, raw);
    try {
      const value = decode(this.codec, raw);
      return value instanceof Promise ? value.then(message, (error) => this.invalid(error)) : message(value);
    } catch (error) {
      return this.invalid(error);
    }
  }

  /** The program asks for the next message, so it has done its work on the one before. @internal */
  protected override now(): Message<T> | Promise<Message<T> | undefined> | undefined {
    this.work?.end();
    this.work = undefined;
    return super.now();
  }

  private invalid(error: unknown): undefined {
    if (this.o.onInvalid) {
      later(this.core.failed, this.o.onInvalid, error as InvalidMessage);
    } else {
      this.halt(error);
    }
  }

  /** @internal */
  protected override ending(error: unknown): void {
    super.ending(error);
    this.work?.end(error);
    this.work = undefined;
  }

  /**
   * Moves the offset of the group, forward only: up to `position`, or up to the last message that the program has. It returns the offset.
   * With `share`, the partition has to be owned, or it fails with `Fenced`.
   */
  async commit(position?: number, partition?: number): Promise<number> {
    const { group, share } = this.o;
    if (!group) throw new TypeError("commit: the subscription has no group");
    if (!share) return this.send(group, position ?? this.position ?? 0);
    if (partition !== undefined) return this.send(group, position ?? this.reached.get(partition) ?? 0, partition);
    const all = await Promise.all([...this.reached].map(([of, at]) => this.send(group, position ?? at, of)));
    return all[0] ?? 0;
  }

  private send(group: string, position: number, partition?: number): Promise<number> {
    const fields = { type: "commit", stream: this.stream, group, position, partition };
    const read = (answer: Answer) => answer.position!;
    const lane = `commit ${this.stream} ${group}`;
    if (partition === undefined) return this.core.outbox.ask({}, lane, fields, read);
    if (!this.owned.has(partition)) return Promise.reject(new Fenced());
    return this.core.outbox.bound(fields, { read, lost: () => new Fenced() });
  }

  /** Iterates over pages of up to `max` messages that have arrived. */
  async *batches(max: number): AsyncGenerator<Page<T>, void, undefined> {
    try {
      for (;;) {
        const first = await this.next();
        if (first.done) return;
        const page = new Page<T>(this);
        page.push(first.value);
        while (page.length < max) {
          const message = await this.now();
          if (!message) break;
          page.push(message);
        }
        yield page;
      }
    } finally {
      this.close();
    }
  }
}

/** Messages that have arrived together. */
export class Page<T> extends Array<Message<T>> {
  readonly #subscription: Subscription<T>;

  /** @internal */
  constructor(subscription: Subscription<T>) {
    super();
    this.#subscription = subscription;
  }

  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }

  /** Moves the offset of the group up to the last message of this page, in each of its partitions. */
  async commit(): Promise<void> {
    const last = new Map<number | undefined, number>();
    for (const message of this) last.set(message.partition, message.position);
    await Promise.all([...last].map(([partition, position]) => this.#subscription.commit(position, partition)));
  }
}

