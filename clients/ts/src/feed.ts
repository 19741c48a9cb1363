import type { Core } from "./core.js";
import { count } from "./duration.js";
import { closed, errorOf, MessageTooLarge, must, TooOld, type TidewireError } from "./errors.js";
import { Inbox } from "./inbox.js";
import type { Answer, CallOptions } from "./request.js";
import { Standing } from "./standing.js";

/** How far the program is: it has a message, or the server has read up to here and has nothing to send. */
export interface Passed {
  position: number;
  partition?: number;
}

interface FeedOptions extends CallOptions {
  credits?: number;
  onGap?: unknown;
}

/**
 * An iteration over messages that the server sends. It lives until the program ends it, over all reconnects.
 * At most as many messages as there are credits wait here: the server sends no more before the program takes some.
 */
export abstract class Feed<Raw extends { position: number }, T> extends Standing implements AsyncIterableIterator<T> {
  /** Is fulfilled when the server has the subscription. Then `position` is known. */
  ready!: Promise<void>;
  /** @internal */
  protected readonly inbox_ = new Inbox<any, T>(() => this.now_());
  /** @internal */
  protected at_: number | undefined;
  private readonly credits_: number;
  private name_: string;
  private used_ = 0;
  /** How many messages the server may still send. */
  private left_: number;

  /** @internal */
  constructor(core: Core, private readonly options_: FeedOptions) {
    const name = core.name_();
    super(core, `feed ${name}`, options_);
    this.credits_ = this.left_ = count("credits", options_.credits ?? 256);
    this.name_ = name;
    core.feeds_.set(name, this);
  }

  /** Begins. It is the last line of the constructor of a subclass. @internal */
  protected open_(): void {
    this.ready = this.begin_();
    // The iteration has the same error.
    this.ready.catch(() => {});
  }

  /** The fields of the request, without its start. @internal */
  protected abstract fields_(): object;
  /** Where it starts at first. @internal */
  protected abstract start_(): object;
  /** Makes what the program gets. It may skip the message, with undefined. @internal */
  protected abstract make_(raw: Raw): T | Promise<T | undefined> | undefined;

  /** The position up to which the program has everything. */
  get position(): number | undefined {
    return this.at_;
  }

  /** @internal */
  protected request_(): object {
    const start = this.at_ === undefined ? this.start_() : { after: this.at_ };
    return { type: "subscribe", subscription: this.name_, credits: this.credits_, ...this.fields_(), ...start };
  }

  /** @internal */
  protected bye_(): object {
    return { type: "unsubscribe", subscription: this.name_ };
  }

  /** @internal */
  protected override read_(answer: Answer): Answer {
    must(answer, "position");
    return answer;
  }

  /** @internal */
  protected answered_(answer: Answer): void {
    if (answer.position !== undefined) this.pass_(answer as Passed);
  }

  /** Subscribes again, after what the program has. @internal */
  protected override again_(): void {
    const core = this.core_;
    this.inbox_.items_ = [];
    this.used_ = 0;
    this.left_ = this.credits_;
    // Messages of the subscription before have its name.
    core.feeds_.delete(this.name_);
    core.feeds_.set((this.name_ = core.name_()), this);
    super.again_();
  }

  /** @internal */
  take_(frame: any): void {
    const { type, partition } = frame;
    const items = this.inbox_.items_;
    const last = items.at(-1);
    // The subscription ends with its error.
    if (last?.type === "error") return;
    if (type === "position") {
      if (!last) return this.pass_(frame);
      if (last.type === type && last.partition === partition) items.pop();
    } else if (type !== "error" && --this.left_ < 0) {
      throw new RangeError(`there are no credits for it in ${this.name_}`);
    }
    this.inbox_.push_(frame);
  }

  /** @internal */
  override down_(): void {
    super.down_();
    this.left_ = this.credits_;
  }

  /** @internal */
  protected recover_(error: TidewireError): boolean {
    if (!this.options_.onGap) return false;
    if (error instanceof TooOld) this.at_ = error.oldest - 1;
    else if (error instanceof MessageTooLarge) this.at_ = error.position;
    else return false;
    this.gap_(error, this.at_ + 1);
    return true;
  }

  /** The program does not get some messages before `oldest`. @internal */
  protected gap_(_: TooOld | MessageTooLarge, _oldest: number): void {}

  /** A partition waits for a commit. @internal */
  protected parked_(_: any): Promise<undefined> | undefined {
    return undefined;
  }

  /** The program has everything up to here. @internal */
  protected pass_({ position }: Passed): void {
    this.at_ = Math.max(this.at_ ?? 0, position);
  }

  /** Counts messages that the program has used, and grants the server as many again. @internal */
  protected use_(n: number): void {
    this.used_ += n;
    if (this.used_ * 2 < this.credits_) return;
    this.core_.send_({ type: "credit", subscription: this.name_, n: this.used_ });
    this.left_ += this.used_;
    this.used_ = 0;
  }

  /** The next message that has arrived. @internal */
  protected now_(): T | Promise<T | undefined> | undefined {
    for (let frame; (frame = this.inbox_.items_.shift()); ) {
      if (frame.type === "position") {
        this.pass_(frame);
      } else if (frame.type === "error") {
        this.trouble_(errorOf(frame));
      } else if (frame.type === "parked") {
        return this.parked_(frame);
      } else {
        const raw = frame.event ?? frame;
        this.use_(1);
        this.pass_(raw);
        const made = this.make_(raw);
        if (made !== undefined) return made;
      }
    }
    return undefined;
  }

  /** The next message. */
  next(): Promise<IteratorResult<T, undefined>> {
    return this.inbox_.next_();
  }

  /** @internal */
  protected ending_(error: unknown): void {
    this.core_.feeds_.delete(this.name_);
    this.inbox_.end_(error);
  }

  /** @internal */
  override ended_(error?: unknown): void {
    this.inbox_.items_ = [];
    this.end_(error);
  }

  /** @internal */
  protected halt_(error?: unknown): void {
    if (this.over_) return;
    this.core_.send_(this.bye_());
    this.ended_(error);
  }

  /** Ends the subscription. Messages that have arrived and were not taken are discarded. */
  close(): void {
    this.abandon_(closed("the subscription was ended"));
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
