import { codecOf, type Codec, type Typed } from "./codec.js";
import type { Core } from "./core.js";
import { milliseconds, type Duration } from "./duration.js";
import { must } from "./errors.js";
import type { Job } from "./job.js";
import type { Answer, CallOptions } from "./request.js";
import { messageJSON, type MessageOptions } from "./stream.js";
import { Worker, type WorkOptions } from "./worker.js";

export interface EnqueueOptions extends MessageOptions, CallOptions {
  /** Deliver it after this time. */
  delay?: Duration;
  /** From 0, the lowest, to 9, in a queue that has priorities. */
  priority?: number;
  /** Store only one message with this key in `uniqueFor`, which begins with the first. */
  uniqueKey?: string;
  uniqueFor?: Duration;
}

/** What the server says of a message in a queue. */
export interface Enqueued {
  /** Where it is; of several the first. */
  position: number;
  /** It was there before: by its unique key, or since this was a repetition, be it one that the library itself has sent after a reconnect. */
  duplicate: boolean;
}

/** Messages for workers: each goes to one of them, until one has done the work. */
export class Queue<T = unknown> {
  private readonly codec_: Codec<T>;

  /** @internal */
  constructor(private readonly core_: Core, readonly name: string, typed: Typed<T>) {
    this.codec_ = codecOf(typed);
  }

  /** Stores a message. The promise is fulfilled after the commit. */
  async enqueue(value: T, options: EnqueueOptions = {}): Promise<Enqueued> {
    return this.send_(messageJSON(this.codec_.encode(value), options).slice(1), options);
  }

  /** Stores up to 1,000 messages, all or none. */
  async enqueueAll(values: readonly T[], options: EnqueueOptions = {}): Promise<Enqueued> {
    const messages = values.map((value) => messageJSON(this.codec_.encode(value), options)).join();
    return this.send_(`"messages":[${messages}]}`, options);
  }

  private send_(body: string, { delay, priority, uniqueKey, uniqueFor, ...options }: EnqueueOptions): Promise<Enqueued> {
    const ms = (duration: Duration | undefined) => (duration === undefined ? undefined : milliseconds(duration));
    const fields = JSON.stringify({ queue: this.name, delay_ms: ms(delay), priority, unique_key: uniqueKey, unique_ms: ms(uniqueFor) }).slice(1, -1);
    const outbox = this.core_.outbox_;
    const read = (answer: Answer) => ({ position: must(answer, "position"), duplicate: !!answer.duplicate });
    return outbox.call_(options, outbox.storing_("enqueue", this.name, () => `${fields},${body}`, read));
  }

  /**
   * Calls the handler for each message, up to `concurrency` at a time. When it returns, the message is done. When it throws, the message is
   * delivered again later, or after {@link Retry}, or never after {@link Dead}. Leases are extended meanwhile.
   */
  work(handler: (job: Job<T>) => unknown, options: WorkOptions<T> = {}): Worker<T> {
    return new Worker(this.core_, this.name, this.codec_, handler, options);
  }
}
