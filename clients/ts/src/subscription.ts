import type { Codec } from "./codec.js";
import type { Core } from "./core.js";
import { count } from "./duration.js";
import { later } from "./emitter.js";
import { errorOf, Fenced, fenced, must, type InvalidMessage } from "./errors.js";
import { Feed, type Passed } from "./feed.js";
import { decode, Message, type RawMessage } from "./message.js";
import { hooks, type Work } from "./hooks.js";
import type { Answer, CallOptions } from "./request.js";

/** Messages that the program does not get. */
export interface Gap {
  /** Retention has dropped them, or the server does not read one because of its size. */
  code: "too_old" | "message_too_large";
  /** The first position after them that may be there: the subscription goes on there. */
  oldest: number;
  /** With `share`. */
  partition: number | undefined;
  /** Of `message_too_large`: the message. */
  position?: number;
  /** Of `message_too_large`: the bytes of its payload. */
  size?: number;
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
  /**
   * What to do about messages that were dropped, or that are too large for the server: `"skip"` goes on without them; a function gets what is missing, too.
   * With `share` this commits `oldest` - 1 of the partition: what the program has got of it before counts as processed.
   * Without it the iteration ends with `TooOld` or `MessageTooLarge`. With `share` another iteration goes on, in this partition after that commit.
   */
  onGap?: "skip" | ((gap: Gap) => unknown);
  /** Gets messages that the codec or schema refuses. Without it the iteration throws `InvalidMessage` for each of them, and another one goes on after it. */
  onInvalid?: (error: InvalidMessage) => unknown;
  /** With `share`: this client owns these partitions too. */
  onAssigned?: (partitions: number[]) => unknown;
  /** With `share`: this client does not own these partitions any more. */
  onRevoked?: (partitions: number[]) => unknown;
}

/** The messages of a stream: those that are stored, and then those to come. */
export class Subscription<T> extends Feed<RawMessage, Message<T>> {
  private readonly owned_ = new Set<number>();
  private readonly reached_ = new Map<number, number>();
  private work_: Work | undefined;

  /** @internal */
  constructor(core: Core, readonly stream: string, private readonly codec_: Codec<T>, private readonly o_: SubscribeOptions) {
    const { after, at, from, group, share } = o_;
    if ([after, at, from, group].filter((start) => start !== undefined).length > 1) throw new TypeError("give one of after, at, from and group");
    if (share && !group) throw new TypeError("share needs a group");
    super(core, o_);
    this.open_();
  }

  /** @internal */
  protected fields_(): object {
    const { keys, headers, share, group } = this.o_;
    return { stream: this.stream, keys, headers, ...(share && { share, group }) };
  }

  /** @internal */
  protected override read_(answer: Answer): Answer {
    return this.o_.share ? answer : super.read_(answer);
  }

  /** @internal */
  protected start_(): object {
    const { after, at, from, group, share } = this.o_;
    return share ? {} : { after, from, group, at: at instanceof Date ? at.toISOString() : at };
  }

  /** @internal */
  protected override gap_({ code, partition, position, size }: any, oldest: number): Promise<unknown> {
    const { onGap } = this.o_;
    return Promise.resolve().then(() => typeof onGap === "function" && onGap({ code, oldest, partition, position, size })).catch(this.core_.failed_);
  }

  /** @internal */
  override take_(message: any): void {
    switch (message.type) {
      case "assigned":
        for (const partition of message.partitions) this.owned_.add(partition);
        return later(this.core_.failed_, this.o_.onAssigned, message.partitions);
      case "revoked":
        return this.revoked_(message.partitions);
      case "parked":
        return this.inbox_.push_(message); // after the messages before it
      default:
        super.take_(message);
    }
  }

  private revoked_(partitions: number[]): void {
    for (const partition of partitions) {
      this.owned_.delete(partition);
      this.reached_.delete(partition);
    }
    const lost = ({ type, partition }: any) => type !== "error" && partitions.includes(partition);
    const items = this.inbox_.items_;
    this.inbox_.items_ = items.filter((frame) => !lost(frame));
    this.use_(items.filter((frame) => frame.type === "message" && lost(frame)).length);
    later(this.core_.failed_, this.o_.onRevoked, partitions);
  }

  /** @internal */
  protected override async parked_(frame: any): Promise<undefined> {
    const { partition, position, oldest } = frame;
    const why = position ? `the message at position ${position} is too large` : `messages before position ${oldest} were dropped`;
    const error = errorOf({ ...frame, message: `partition ${partition}: ${why}: commit ${oldest - 1}, and iterate again` });
    if (!this.o_.onGap) throw error;
    await this.gap_(error, oldest);
    try {
      await this.commit(oldest - 1, partition);
    } catch (failure) {
      if (failure instanceof Fenced) return; // its owner does the same
      this.inbox_.items_.unshift(frame); // for the next iteration
      throw failure;
    }
  }

  /** @internal */
  override down_(): void {
    super.down_();
    if (this.owned_.size) this.revoked_([...this.owned_]);
  }

  /** @internal */
  protected override pass_(passed: Passed): void {
    if (this.o_.share) this.reached_.set(passed.partition ?? 0, passed.position);
    else super.pass_(passed);
  }

  /** @internal */
  protected make_(raw: RawMessage): Message<T> | Promise<Message<T> | undefined> | undefined {
    const message = (value: T) => new Message(value, raw.position, raw.time, raw.key, raw.headers, raw.partition);
    this.work_ = hooks.working_?.("receive", this.stream, raw);
    try {
      const value = decode(this.codec_, raw);
      return value instanceof Promise ? value.then(message, (error) => this.invalid_(error)) : message(value);
    } catch (error) {
      return this.invalid_(error);
    }
  }

  /** The program asks for the next message, so it has done its work on the one before. @internal */
  protected override now_(): Message<T> | Promise<Message<T> | undefined> | undefined {
    this.work_?.end_();
    this.work_ = undefined;
    return super.now_();
  }

  private invalid_(error: unknown): undefined {
    if (!this.o_.onInvalid) throw error;
    later(this.core_.failed_, this.o_.onInvalid, error as InvalidMessage);
  }

  /** @internal */
  protected override ending_(error: unknown): void {
    super.ending_(error);
    this.work_?.end_(error);
    this.work_ = undefined;
  }

  /**
   * Moves the offset of the group, forward only: up to `position`, or up to the last message that the program has. It returns the offset.
   * With `share`, the partition has to be owned, or it fails with `Fenced`.
   */
  async commit(position?: number, partition?: number): Promise<number> {
    const { group, share } = this.o_;
    if (!group) throw new TypeError("commit needs a group");
    if (!share) return this.send_(group, position ?? this.at_ ?? 0);
    if (partition !== undefined) return this.send_(group, position ?? this.reached_.get(partition) ?? 0, partition);
    const all = await Promise.all([...this.reached_].map(([of, at]) => this.send_(group, position ?? at, of)));
    return all[0] ?? 0;
  }

  private send_(group: string, position: number, partition?: number): Promise<number> {
    const fields = { type: "commit", stream: this.stream, group, position, partition };
    const read = (answer: Answer) => must(answer, "position");
    const lane = `commit ${this.stream} ${group}`;
    if (partition === undefined) return this.core_.outbox_.ask_({}, lane, fields, read);
    if (!this.owned_.has(partition)) return Promise.reject(fenced());
    return this.core_.outbox_.bound_(fields, { read_: read, lost_: () => fenced() });
  }

  /** Iterates over pages of up to `max` messages that have arrived. */
  pages(max: number): AsyncGenerator<Page<T>, void, undefined> {
    return this.paging_(count("max", max));
  }

  private async *paging_(max: number): AsyncGenerator<Page<T>, void, undefined> {
    let thrown = false;
    try {
      for (;;) {
        const page = new Page<T>(this);
        let failure: unknown;
        try {
          const first = await this.next();
          if (first.done) return;
          page.push(first.value);
          // The program gets these before it goes on after an error or a gap.
          while (page.length < max && /message|position/.test(this.inbox_.items_[0]?.type)) {
            const message = await this.now_();
            if (!message) break;
            page.push(message);
          }
        } catch (error) {
          failure = error; // the messages before it come first
        }
        if (page.length) yield page;
        if (failure !== undefined) {
          thrown = true; // another iteration goes on
          throw failure;
        }
      }
    } finally {
      if (!thrown) this.close();
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

