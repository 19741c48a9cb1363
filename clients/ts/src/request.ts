import { milliseconds, type Duration } from "./duration.js";
import { errorOf, OutcomeUnknown, Timeout, type Problem, type TidewireError } from "./errors.js";

/** What every call that waits for an answer takes. */
export interface CallOptions {
  /** How long the call may take, with all its attempts. `0` is without end. 30 s unless given here or for the client. */
  timeout?: Duration;
  /** Ends the wait. What was sent may have its effect all the same. */
  signal?: AbortSignal;
}

/** An answer of the server. */
export type Answer = Problem & { type: string; id: number; [field: string]: any };

/** One call of the program that waits. */
export class Caller<R = any> {
  readonly promise: Promise<R>;
  /** Whether the program still waits. */
  open = true;
  /** The message of this call, in a request that has those of several. */
  part = "";
  private resolve!: (result: R) => void;
  private reject!: (error: unknown) => void;
  private aborted: (() => void) | undefined;

  constructor(readonly deadline: number, private readonly signal?: AbortSignal) {
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  /** Calls gone when the signal is aborted. */
  watch(gone: () => void): void {
    if (!this.signal) return;
    this.aborted = () => {
      this.fail(this.signal!.reason);
      gone();
    };
    if (this.signal.aborted) this.aborted();
    else this.signal.addEventListener("abort", this.aborted);
  }

  done(result: R): void {
    if (this.close()) this.resolve(result);
  }

  fail(error: unknown): void {
    if (this.close()) this.reject(error);
  }

  private close(): boolean {
    if (!this.open) return false;
    this.open = false;
    if (this.aborted) this.signal!.removeEventListener("abort", this.aborted);
    return true;
  }
}

/** When the time of a call ends. */
export function deadlineOf(options: CallOptions, timeout: number): number {
  const ms = options.timeout === undefined ? timeout : milliseconds(options.timeout);
  return ms === 0 ? Infinity : Date.now() + ms;
}

/**
 * What happens to a request whose connection ends before its answer:
 * it is sent again; it fails, since it may have had its effect; or it fails, since it means something on that connection alone.
 */
export type Mode = "repeat" | "once" | "bound";

/** How a request is made. */
export interface Spec {
  /** Requests of one lane wait together when the server wants a pause. */
  lane: string;
  mode: Mode;
  /** It goes out before what waits, which may need it. */
  ahead?: boolean;
  /** It has an effect: if its outcome is not known, that is an error of its own. */
  effect?: boolean;
  /** The text of the frame. It is asked before the request is sent for the first time. */
  write(request: Request): string;
  /** The result of caller i. */
  read(answer: Answer, i: number): unknown;
  /** The error of a request that ends with its connection. */
  lost?(): TidewireError;
  /** The error of an answer, if it is another one than usual. */
  error?(answer: Answer): TidewireError | undefined;
}

/** A request on the wire, with the calls that wait for it. */
export class Request {
  readonly callers: Caller[] = [];
  text: string | undefined;
  /** It is on its way on this connection. */
  sent = false;
  /** It was on its way, on this connection or another: from then on it stays as it is. */
  begun = false;
  /** It was on its way, and nobody knows what became of it. */
  unknown = false;
  /** The answer before, after which it is sent again. */
  last: TidewireError | undefined;

  constructor(readonly id: number, readonly spec: Spec) {}

  /** Whether anybody waits. */
  get waiting(): boolean {
    return this.callers.some((caller) => caller.open);
  }

  frame(): string {
    if (this.text === undefined) {
      for (let i = this.callers.length; i-- > 0; ) if (!this.callers[i]!.open) this.callers.splice(i, 1);
      this.text = this.spec.write(this);
    }
    return this.text;
  }

  ok(answer: Answer): void {
    this.callers.forEach((caller, i) => caller.done(this.spec.read(answer, i)));
  }

  fail(error: unknown): void {
    for (const caller of this.callers) caller.fail(error);
  }

  /** Fails the calls whose time is over, and returns when the next one ends. */
  expire(now: number): number {
    let next = Infinity;
    for (const caller of this.callers) {
      if (!caller.open) continue;
      if (caller.deadline <= now) caller.fail(this.expired());
      else if (caller.deadline < next) next = caller.deadline;
    }
    return next;
  }

  private expired(): TidewireError {
    if (this.spec.effect && (this.sent || this.unknown)) {
      return new OutcomeUnknown("no answer has come in time: the request may have had its effect", this.id, { cause: this.last });
    }
    return this.last ?? new Timeout(this.sent ? "no answer has come in time" : "the request could not be sent in time", this.id);
  }

  /** The error that an answer is. */
  errorOf(answer: Answer): TidewireError {
    return this.spec.error?.(answer) ?? errorOf(answer, this.id);
  }
}
