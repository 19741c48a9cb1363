import { milliseconds, type Duration } from "./duration.js";
import { errorOf, outcomeUnknown, timedOut, type Problem, type TidewireError } from "./errors.js";
import type { Link } from "./outbox.js";

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
  readonly promise_: Promise<R>;
  /** Whether the program still waits. */
  open_ = true;
  /** The message of this call, in a request that has those of several. */
  part_ = "";
  private resolve_!: (result: R) => void;
  private reject_!: (error: unknown) => void;
  private aborted_: (() => void) | undefined;

  constructor(readonly order_: number, readonly deadline_: number, private readonly signal_?: AbortSignal) {
    this.promise_ = new Promise((resolve, reject) => {
      this.resolve_ = resolve;
      this.reject_ = reject;
    });
  }

  /** Calls gone when the signal is aborted. */
  watch_(gone: () => void): void {
    if (!this.signal_) return;
    this.aborted_ = () => {
      this.fail_(this.signal_!.reason);
      gone();
    };
    if (this.signal_.aborted) this.aborted_();
    else this.signal_.addEventListener("abort", this.aborted_);
  }

  done_(result: R): void {
    if (this.close_()) this.resolve_(result);
  }

  fail_(error: unknown): void {
    if (this.close_()) this.reject_(error);
  }

  private close_(): boolean {
    if (!this.open_) return false;
    this.open_ = false;
    if (this.aborted_) this.signal_!.removeEventListener("abort", this.aborted_);
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
  lane_: string;
  mode_: Mode;
  /** It goes out before what waits, which may need it. */
  ahead_?: boolean;
  /** It has an effect: if its outcome is not known, that is an error of its own. */
  effect_?: boolean;
  /** The text of the frame. It is asked before the request is sent for the first time. */
  write_(request: Request): string;
  /** The result of caller i. It throws if the answer lacks something. */
  read_(answer: Answer, i: number): unknown;
  /** The error of a request that ends with its connection. */
  lost_?(): TidewireError;
}

/** A request on the wire, with the calls that wait for it. */
export class Request {
  readonly callers_: Caller[] = [];
  text_: string | undefined;
  /** It is on its way on this connection. */
  sent_ = false;
  /** It was on its way, on this connection or another: from then on it stays as it is. */
  begun_ = false;
  /** It was on its way, and nobody knows what became of it. */
  unknown_ = false;
  /** The answer before, after which it is sent again. */
  last_: TidewireError | undefined;

  constructor(readonly id_: number, readonly spec_: Spec) {}

  /** Its place among all: that of its first call. */
  get order_(): number {
    return this.callers_[0]!.order_;
  }

  /** Whether anybody waits. */
  get waiting_(): boolean {
    return this.callers_.some((caller) => caller.open_);
  }

  frame_(): string {
    if (this.text_ === undefined) {
      for (let i = this.callers_.length; i-- > 0; ) if (!this.callers_[i]!.open_) this.callers_.splice(i, 1);
      this.text_ = this.spec_.write_(this);
    }
    return this.text_;
  }

  /** Hands the results to the calls: to all, or, if the answer is not valid, to none. */
  ok_(answer: Answer): void {
    const results = this.callers_.map((_, i) => this.spec_.read_(answer, i));
    this.callers_.forEach((caller, i) => caller.done_(results[i]));
  }

  fail_(error: unknown): void {
    for (const caller of this.callers_) caller.fail_(error);
  }

  /** Fails the calls whose time is over, and returns when the next one ends. */
  expire_(now: number, link: Link): number {
    let next = Infinity;
    for (const caller of this.callers_) {
      if (!caller.open_) continue;
      if (caller.deadline_ <= now) caller.fail_(this.expired_(link));
      else if (caller.deadline_ < next) next = caller.deadline_;
    }
    return next;
  }

  private expired_({ up_, failure_ }: Link): TidewireError {
    if (this.spec_.effect_ && (this.sent_ || this.unknown_)) {
      return outcomeUnknown("no answer in time: the request may have had its effect", this.id_, this.last_ ?? failure_);
    }
    if (this.last_) return this.last_;
    if (this.sent_) return timedOut("no answer in time", this.id_);
    const why = up_ ? "others wait for their answers" : (failure_?.message ?? "there is no connection yet");
    return timedOut(`not sent in time: ${why}`, this.id_, failure_);
  }

  /** The error that an answer is. */
  errorOf_(answer: Answer): TidewireError {
    const error = errorOf(answer, this.id_);
    return /^(outcome_unknown|sequence_too_old)$/.test(answer.code) ? outcomeUnknown(answer.message, this.id_, error) : error;
  }
}
