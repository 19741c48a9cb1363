import { byteLength, type Codec } from "./codec.js";
import type { Core } from "./core.js";
import { milliseconds, quietTimer, within, type Duration } from "./duration.js";
import { later } from "./emitter.js";
import { Closed, errorOf } from "./errors.js";
import { Dead, Job, Retry, type Delivery } from "./job.js";
import { decode } from "./message.js";
import { working } from "./otel.js";
import type { CallOptions } from "./request.js";
import { Settler, type Outcome } from "./settle.js";
import { Standing } from "./standing.js";

export type { Outcome };

export interface WorkOptions<T> extends CallOptions {
  /** How many handlers run at a time: 1 unless given. */
  concurrency?: number;
  /** By how long a lease is extended, at half of this time: 30 s unless given. */
  lease?: Duration;
  /** Is told what became of each job, and of the error of its handler. */
  onDone?: (job: Job<T>, outcome: Outcome, error?: unknown) => unknown;
}

const serverLease = 30_000;

/** Works on the messages of a queue, until it is stopped. */
export class Worker<T> extends Standing {
  /** Is fulfilled when the server sends messages. */
  readonly ready: Promise<void>;
  /** Is fulfilled when the worker has stopped. It fails if the worker cannot go on. */
  readonly done: Promise<void>;
  private finish!: () => void;
  private fail!: (error: unknown) => void;
  private readonly jobs = new Map<string, Job<T>>();
  // When the next extension of a lease is due, in the order of these times.
  private readonly due = new Map<Job<T>, number>();
  private readonly settler: Settler;
  private readonly concurrency: number;
  private readonly lease: number;
  private running = 0;
  private stopping: Promise<void> | undefined;
  private extension: ReturnType<typeof setTimeout> | undefined;
  private idle: (() => void) | undefined;

  /** @internal */
  constructor(
    core: Core,
    readonly queue: string,
    private readonly codec: Codec<T>,
    private readonly handler: (job: Job<T>) => unknown,
    private readonly options: WorkOptions<T>,
  ) {
    if (core.workers.has(queue)) throw new TypeError(`this client has a worker of the queue ${JSON.stringify(queue)}: give it more concurrency`);
    super(core, `consume ${queue}`, options);
    this.concurrency = options.concurrency ?? 1;
    this.lease = milliseconds(options.lease ?? serverLease);
    this.settler = new Settler(core, queue);
    this.done = new Promise((resolve, reject) => {
      this.finish = resolve;
      this.fail = reject;
    });
    core.workers.set(queue, this);
    this.ready = this.begin();
    // The promise `done` has the same error.
    this.ready.catch(() => {});
  }

  /** @internal */
  protected request(): object {
    return { type: "consume", queue: this.queue, credits: this.concurrency };
  }

  /** @internal */
  protected answered(): void {}

  /** @internal */
  protected recover(): boolean {
    this.lose();
    return false;
  }

  /** @internal */
  override up(): void {
    if (!this.stopping) super.up();
  }

  /** @internal */
  override down(): void {
    super.down();
    this.lose();
  }

  private lose(reason?: Error): void {
    for (const job of this.jobs.values()) job.lose(reason);
    this.jobs.clear();
    this.due.clear();
  }

  /** @internal */
  override ended(error?: Error): void {
    this.lose(new Closed());
    this.end(error);
  }

  /** @internal */
  take(message: any): void {
    if (message.type === "error") this.trouble(errorOf(message));
    else this.deliver(message);
  }

  private deliver(raw: Delivery): void {
    // What comes after the stop has begun goes back to the queue with the end of the consumer.
    if (this.over || this.stopping) return;
    const job = new Job<T>(raw);
    this.jobs.set(raw.delivery, job);
    this.running++;
    this.watch(job, Math.min(this.lease, serverLease) / 2);
    void Promise.resolve().then(() => this.run(job, raw));
  }

  private async run(job: Job<T>, raw: Delivery): Promise<void> {
    const work = working("process", this.queue, raw);
    let failure: unknown;
    let settled: Promise<boolean>;
    try {
      (job as { value: T }).value = await decode(this.codec, raw);
      await (work ? work.run(() => this.handler(job)) : this.handler(job));
      this.release(job);
      settled = job.lost ? Promise.resolve(false) : this.settler.ack(job.delivery, this.running === 0 || this.running * 2 <= this.concurrency);
    } catch (error) {
      failure = error ?? new Error("the handler has thrown nothing");
      this.release(job);
      settled = job.lost ? Promise.resolve(false) : this.settler.nack(job.delivery, refusal(failure));
    }
    work?.end(failure);
    await this.report(job, settled, failure);
  }

  /** The handler has ended. */
  private release(job: Job<T>): void {
    this.running--;
    this.due.delete(job);
  }

  private async report(job: Job<T>, settled: Promise<boolean>, failure: unknown): Promise<void> {
    let outcome: Outcome = "lost";
    try {
      if (await settled) outcome = failure === undefined ? "acked" : "nacked";
    } catch (error) {
      this.core.failed(error);
    }
    if (this.jobs.get(job.delivery) === job) this.jobs.delete(job.delivery);
    later(this.core.failed, this.options.onDone, job, outcome, failure);
    if (this.jobs.size === 0) this.idle?.();
  }

  private watch(job: Job<T>, after: number): void {
    this.due.set(job, Date.now() + after);
    this.extension ??= quietTimer(() => this.extend(), after);
  }

  private extend(): void {
    this.extension = undefined;
    const now = Date.now();
    const jobs: Job<T>[] = [];
    for (const [job, due] of this.due) {
      if (due > now) {
        this.extension = quietTimer(() => this.extend(), due - now);
        break;
      }
      jobs.push(job);
    }
    for (const job of jobs) this.due.delete(job);
    for (const job of jobs) this.watch(job, this.lease / 2);
    for (let i = 0; i < jobs.length; i += 1_000) void this.extendSome(jobs.slice(i, i + 1_000));
  }

  private async extendSome(jobs: Job<T>[]): Promise<void> {
    const lost = await this.settler.settle("extend", jobs.map((job) => job.delivery), { lease_ms: this.lease });
    for (const job of jobs) {
      if (!lost.has(job.delivery)) continue;
      job.lose();
      this.due.delete(job);
      this.jobs.delete(job.delivery);
    }
  }

  /** Takes no more messages, lets handlers end for `drain` (10 s unless given), and gives the others back. */
  stop({ drain = 10_000 }: { drain?: Duration } = {}): Promise<void> {
    return (this.stopping ??= this.wind(milliseconds(drain)));
  }

  /** @internal */
  protected halt(): void {
    void this.stop();
  }

  private async wind(drain: number): Promise<void> {
    if (this.over) return;
    this.core.send({ type: "credit", queue: this.queue, n: -this.concurrency });
    if (this.jobs.size) await within(drain, new Promise<void>((resolve) => (this.idle = resolve)));
    this.lose(new Closed("the worker has stopped"));
    // If the connection ends, the consumer does, too.
    await this.core.outbox.bound({ type: "cancel", queue: this.queue }, {}, { timeout: 5_000 }).catch(() => {});
    this.end();
  }

  /** @internal */
  protected ending(error: unknown): void {
    clearTimeout(this.extension);
    this.core.workers.delete(this.queue);
    if (error === undefined || this.stopping) this.finish();
    else this.fail(error);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** The fields of a nack, by what the handler has thrown. */
function refusal(error: unknown): object {
  const reason = short(error instanceof Error ? error.message : String(error)) || undefined;
  if (error instanceof Retry) return { delay_ms: Math.round(error.after), reason };
  if (error instanceof Dead) return { dead: true, reason };
  return { reason };
}

/** As much of a text as the server takes. */
function short(reason: string): string {
  let text = reason.replaceAll("\0", "");
  while (byteLength(text) > 1_024) text = text.slice(0, text.length > 1_024 ? 1_024 : Math.floor(text.length * 0.9));
  // Half of a pair of surrogates would be no UTF-8.
  return text.replace(/[\ud800-\udbff]$/, "");
}
