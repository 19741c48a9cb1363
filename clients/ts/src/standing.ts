import type { Core } from "./core.js";
import { pause } from "./duration.js";
import { TidewireError } from "./errors.js";
import { deadlineOf, type Answer, type CallOptions } from "./request.js";

/**
 * What the program has asked for once, and has until it ends it: a subscription, a worker, a membership.
 * It is asked for again on each connection, and after each error that passes.
 */
export abstract class Standing {
  /** @internal */
  protected over_ = false;
  /** Whether the server had it once. @internal */
  protected live_ = false;
  private turn_ = 0;
  private failures_ = 0;
  private timer_: ReturnType<typeof setTimeout> | undefined;
  private unwatch_: (() => void) | undefined;
  /** @internal */
  protected readonly first_ = new AbortController();

  /** @internal */
  constructor(
    /** @internal */ protected readonly core_: Core,
    private readonly lane_: string,
    private readonly call_: CallOptions,
  ) {
    // What is wrong with it is an error of the call, and not of an iteration.
    deadlineOf(call_, 0);
  }

  /** The request, as of now. @internal */
  protected abstract request_(): object;
  /** What ends it on the server. @internal */
  protected abstract bye_(): object;
  /** Reads the answer to it. It throws if that lacks something. @internal */
  protected read_(answer: Answer): Answer {
    return answer;
  }

  /** The server has it. @internal */
  protected abstract answered_(answer: Answer): void;
  /** The server has it no more. It is true if it is to be asked for again at once, in another way. @internal */
  protected abstract recover_(error: TidewireError): boolean;
  /** It has ended. @internal */
  protected abstract ending_(error: unknown): void;
  /** @internal */
  protected abstract halt_(): unknown;

  /** Asks for it for the first time. @internal */
  protected async begin_(): Promise<void> {
    const { timeout, signal } = this.call_;
    const stop = () => this.abandon_(signal!.reason);
    this.core_.resumed_.add(this);
    signal?.addEventListener("abort", stop);
    this.unwatch_ = () => signal?.removeEventListener("abort", stop);
    if (signal?.aborted) stop();
    for (;;) {
      try {
        const options = { timeout: timeout!, signal: this.first_.signal };
        const answer = await this.core_.outbox_.ask_(options, this.lane_, this.request_(), (ok) => this.read_(ok));
        this.live_ = true;
        return this.answered_(answer);
      } catch (error) {
        if (!this.over_ && error instanceof TidewireError && this.recover_(error)) continue;
        // Without an answer in time, the server may have it all the same.
        if (!this.first_.signal.aborted) this.core_.send_(this.bye_());
        this.end_(error);
        throw error;
      }
    }
  }

  /** @internal */
  protected abandon_(reason: unknown): void {
    this.first_.abort(reason);
    this.halt_();
  }

  /** Asks for it again. @internal */
  protected again_(): void {
    clearTimeout(this.timer_);
    if (this.over_ || !this.core_.up_) return;
    const turn = ++this.turn_;
    this.core_.outbox_.bound_(this.request_(), { ahead_: true, read_: (ok) => this.read_(ok) }).then(
      (answer) => {
        if (turn !== this.turn_) return;
        this.failures_ = 0;
        this.answered_(answer);
      },
      (error: TidewireError) => {
        // After the end of the connection it is asked for on the next one.
        if (turn === this.turn_ && error.code !== "connection_lost") this.trouble_(error);
      },
    );
  }

  /** The server has ended it, or does not begin it. @internal */
  protected trouble_(error: TidewireError): void {
    if (this.over_) return;
    if (this.recover_(error)) this.again_();
    else if (error.retryable) this.timer_ = setTimeout(() => this.again_(), pause(error.retryAfter, this.failures_++));
    else this.end_(error);
  }

  /** @internal */
  up_(): void {
    if (this.live_) this.again_();
  }

  /** @internal */
  down_(): void {
    clearTimeout(this.timer_);
  }

  /** @internal */
  ended_(error?: unknown): void {
    this.end_(error);
  }

  /** @internal */
  protected end_(error?: unknown): void {
    if (this.over_) return;
    this.over_ = true;
    this.unwatch_?.();
    clearTimeout(this.timer_);
    this.core_.resumed_.delete(this);
    this.ending_(error);
  }
}
