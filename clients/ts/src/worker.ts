import { encoder, type Codec } from "./codec.js";
import type { Core } from "./core.js";
import { count, milliseconds, quietTimer, within, type Duration } from "./duration.js";
import { later } from "./emitter.js";
import { closed, errorOf } from "./errors.js";
import { Dead, Job, Retry, type Delivery } from "./job.js";
import { decode } from "./message.js";
import { hooks } from "./hooks.js";
import type { CallOptions } from "./request.js";
import { Settler, type Outcome } from "./settle.js";
import { Standing } from "./standing.js";

export type { Outcome };

export interface WorkOptions<T> extends CallOptions {
  /** How many handlers run at a time: 1 unless given. */
  concurrency?: number;
  /** By how long a lease is extended, at half of this time: 30 s unless given. */
  lease?: Duration;
  /** Is told what became of each job, and of the error of its handler. Without it, errors of handlers go to `console.warn`. */
  onDone?: (job: Job<T>, outcome: Outcome, error?: unknown) => unknown;
}

const serverLease = 30_000;

/** Works on the messages of a queue, until it is stopped. */
export class Worker<T> extends Standing {
  /** Is fulfilled when the server sends messages. */
  readonly ready: Promise<void>;
  /** Is fulfilled when the worker stopped. It fails if the worker cannot go on. */
  readonly done: Promise<void>;
  private finish_!: () => void;
  private fail_!: (error: unknown) => void;
  private readonly jobs_ = new Map<string, Job<T>>();
  // When the next extension of a lease is due, in the order of these times.
  private readonly due_ = new Map<Job<T>, number>();
  private readonly settler_: Settler;
  private readonly concurrency_: number;
  private readonly lease_: number;
  private readonly begins_: string[] = [];
  private running_ = 0;
  private stopping_: Promise<void> | undefined;
  private extension_: ReturnType<typeof setTimeout> | undefined;
  private idle_: (() => void) | undefined;

  /** @internal */
  constructor(
    core: Core,
    readonly queue: string,
    private readonly codec_: Codec<T>,
    private readonly handler_: (job: Job<T>) => unknown,
    private readonly options_: WorkOptions<T>,
  ) {
    if (core.workers_.has(queue)) throw new TypeError(`this client has a worker of ${queue}: give it more concurrency`);
    super(core, `consume ${queue}`, options_);
    this.concurrency_ = count("concurrency", options_.concurrency ?? 1);
    this.lease_ = milliseconds(options_.lease ?? serverLease);
    this.settler_ = new Settler(core, queue);
    this.done = new Promise((resolve, reject) => {
      this.finish_ = resolve;
      this.fail_ = reject;
    });
    core.workers_.set(queue, this);
    this.ready = this.begin_();
    // The promise `done` has the same error.
    this.ready.catch(() => {});
  }

  /** @internal */
  protected request_(): object {
    return { type: "consume", queue: this.queue, credits: this.concurrency_, begin: true };
  }

  /** @internal */
  protected bye_(): object {
    return { type: "cancel", queue: this.queue };
  }

  /** @internal */
  protected answered_(): void {}

  /** @internal */
  protected recover_(): boolean {
    this.lose_();
    return false;
  }

  /** @internal */
  override up_(): void {
    if (!this.stopping_) super.up_();
  }

  /** @internal */
  override down_(): void {
    super.down_();
    this.lose_();
  }

  private lose_(reason?: Error): void {
    for (const job of this.jobs_.values()) job.lose_(reason);
    this.jobs_.clear();
    this.due_.clear();
  }

  /** @internal */
  override ended_(error?: Error): void {
    this.lose_(closed());
    this.end_(error);
  }

  /** @internal */
  take_(message: any): void {
    if (message.type === "error") this.trouble_(errorOf(message));
    else this.deliver_(message);
  }

  private deliver_(raw: Delivery): void {
    // What comes after the stop has begun goes back to the queue with the end of the consumer.
    if (this.over_ || this.stopping_) return;
    // Answers may come after deliveries for which they made room, and the server knows first of a lease that has ended.
    if (this.jobs_.size >= 4 * this.concurrency_) throw new RangeError(`there are no credits for it in ${this.queue}`);
    const job = new Job<T>(raw);
    this.jobs_.set(raw.delivery, job);
    this.running_++;
    this.beginJob_(raw.delivery);
    this.watch_(job, Math.min(this.lease_, serverLease) / 2);
    later(this.core_.failed_, () => this.run_(job, raw));
  }

  /** Says that the work begins, before the handler is called: with all that came in the same turn. */
  private beginJob_(delivery: string): void {
    if (this.begins_.push(delivery) > 1) return;
    later(this.core_.failed_, () => this.core_.send_({ type: "begin", queue: this.queue, deliveries: this.begins_.splice(0) }));
  }

  private async run_(job: Job<T>, raw: Delivery): Promise<void> {
    const work = hooks.working_?.("process", this.queue, raw);
    let failure: unknown;
    try {
      (job as { value: T }).value = await decode(this.codec_, raw);
      await (work ? work.run_(() => this.handler_(job)) : this.handler_(job));
    } catch (error) {
      failure = error ?? new Error("it has thrown nothing");
    }
    this.running_--;
    this.due_.delete(job);
    const settled = !job.lost && this.settle_(job, failure);
    work?.end_(failure);
    await this.report_(job, settled, failure);
  }

  private settle_(job: Job<T>, failure: unknown): Promise<boolean> {
    if (failure !== undefined) return this.settler_.nack_(job.delivery_, refusal(failure));
    return this.settler_.ack_(job.delivery_, this.running_ * 2 <= this.concurrency_);
  }

  private async report_(job: Job<T>, settled: boolean | Promise<boolean>, failure: unknown): Promise<void> {
    const outcome: Outcome = (await settled) ? (failure === undefined ? "acked" : "nacked") : "lost";
    if (this.jobs_.get(job.delivery_) === job) this.jobs_.delete(job.delivery_);
    const { onDone } = this.options_;
    if (onDone) later(this.core_.failed_, onDone, job, outcome, failure);
    else if (settled && failure !== undefined && !(failure instanceof Retry || failure instanceof Dead)) {
      console.warn(`tidewire: queue ${this.queue}, position ${job.position}, delivery ${job.delivery_}: the handler has failed`, failure);
    }
    if (this.jobs_.size === 0) this.idle_?.();
  }

  private watch_(job: Job<T>, after: number): void {
    this.due_.set(job, Date.now() + after);
    this.extension_ ??= quietTimer(() => this.extend_(), after);
  }

  private async extend_(): Promise<void> {
    this.extension_ = undefined;
    const now = Date.now();
    const jobs: Job<T>[] = [];
    for (const [job, due] of this.due_) {
      if (due > now) {
        this.extension_ = quietTimer(() => this.extend_(), due - now);
        break;
      }
      jobs.push(job);
    }
    for (const job of jobs) this.due_.delete(job);
    for (const job of jobs) this.watch_(job, this.lease_ / 2);
    const lost = await this.settler_.settle_("extend", jobs.map((job) => job.delivery_), { lease_ms: this.lease_ });
    for (const job of jobs) {
      if (!lost.has(job.delivery_)) continue;
      job.lose_();
      this.due_.delete(job);
      this.jobs_.delete(job.delivery_);
    }
  }

  /** Takes no more messages, lets handlers end for `drain` (10 s unless given), and gives the others back. */
  stop({ drain = 10_000 }: { drain?: Duration } = {}): Promise<void> {
    return (this.stopping_ ??= this.wind_(milliseconds(drain)));
  }

  /** @internal */
  protected halt_(): void {
    void this.stop();
  }

  private async wind_(drain: number): Promise<void> {
    if (this.over_) return;
    // A first request that is not answered must not go out later.
    const stopped = closed("the worker stopped");
    this.first_.abort(stopped);
    this.core_.send_({ type: "credit", queue: this.queue, n: -this.concurrency_ });
    if (this.jobs_.size) await within(drain, new Promise<void>((resolve) => (this.idle_ = resolve)));
    this.lose_(stopped);
    // If the connection ends, the consumer does, too.
    await this.core_.outbox_.bound_(this.bye_(), {}, { timeout: 5_000 }).catch(() => {});
    this.end_();
  }

  /** @internal */
  protected ending_(error: unknown): void {
    clearTimeout(this.extension_);
    this.core_.workers_.delete(this.queue);
    if (error === undefined || this.stopping_) this.finish_();
    else this.fail_(error);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** The fields of a nack, by what the handler has thrown. */
function refusal(error: unknown): object {
  const reason = short(String(error instanceof Error ? error.message : error)) || undefined;
  if (error instanceof Retry) return { delay_ms: Math.round(error.after), reason };
  return { dead: error instanceof Dead || undefined, reason };
}

/** As much of a text as the server takes: 1,024 bytes, without a character that is cut. */
const short = (reason: string): string => new TextDecoder().decode(encoder.encode(reason.replaceAll("\0", "")).subarray(0, 1_024), { stream: true });
