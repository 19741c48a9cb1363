import type { Core } from "./core.js";
import { jitter } from "./duration.js";
import { TidewireError } from "./errors.js";
import type { Answer, CallOptions } from "./request.js";

/**
 * What the program has asked for once, and has until it ends it: a subscription, a worker, a membership.
 * It is asked for again on each connection, and after each error that passes.
 */
export abstract class Standing {
  /** @internal */
  protected over = false;
  /** Whether the server had it once. @internal */
  protected live = false;
  private turn = 0;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private unwatch: (() => void) | undefined;
  private readonly first = new AbortController();

  /** @internal */
  constructor(
    /** @internal */ protected readonly core: Core,
    private readonly lane: string,
    private readonly call: CallOptions,
  ) {}

  /** The request, as of now. @internal */
  protected abstract request(): object;
  /** The server has it. @internal */
  protected abstract answered(answer: Answer): void;
  /** The server has it no more. It is true if it is to be asked for again at once, in another way. @internal */
  protected abstract recover(error: TidewireError): boolean;
  /** It has ended. @internal */
  protected abstract ending(error: unknown): void;
  /** @internal */
  protected abstract halt(): unknown;

  /** Asks for it for the first time. @internal */
  protected async begin(): Promise<void> {
    const { timeout, signal } = this.call;
    const stop = () => this.abandon(signal!.reason);
    this.core.resumed.add(this);
    signal?.addEventListener("abort", stop);
    this.unwatch = () => signal?.removeEventListener("abort", stop);
    if (signal?.aborted) stop();
    for (;;) {
      try {
        const answer = await this.core.outbox.ask({ timeout: timeout!, signal: this.first.signal }, this.lane, this.request());
        this.live = true;
        return this.answered(answer);
      } catch (error) {
        if (!this.over && error instanceof TidewireError && this.recover(error)) continue;
        this.end(error);
        throw error;
      }
    }
  }

  /** @internal */
  protected abandon(reason: unknown): void {
    this.first.abort(reason);
    this.halt();
  }

  /** Asks for it again. @internal */
  protected again(): void {
    clearTimeout(this.timer);
    if (this.over || !this.core.up) return;
    const turn = ++this.turn;
    this.core.outbox.bound(this.request(), { ahead: true }).then(
      (answer) => {
        if (turn !== this.turn) return;
        this.failures = 0;
        this.answered(answer);
      },
      (error: TidewireError) => {
        // After the end of the connection it is asked for on the next one.
        if (turn === this.turn && error.code !== "connection_lost") this.trouble(error);
      },
    );
  }

  /** The server has ended it, or does not begin it. @internal */
  protected trouble(error: TidewireError): void {
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
    this.end(error);
  }

  /** @internal */
  protected end(error?: unknown): void {
    if (this.over) return;
    this.over = true;
    this.unwatch?.();
    clearTimeout(this.timer);
    this.core.resumed.delete(this);
    this.ending(error);
  }
}
