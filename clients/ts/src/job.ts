import { milliseconds, type Duration } from "./duration.js";
import { errorOf } from "./errors.js";
import type { RawMessage } from "./message.js";
import type { Headers } from "./hooks.js";

/** A delivery as it comes. */
export interface Delivery extends RawMessage {
  delivery: string;
  attempt: number;
}

/** Thrown by a handler: the message is delivered again after this time. */
export class Retry extends Error {
  readonly after: number;
  constructor(after: Duration, reason = "") {
    super(reason);
    this.after = milliseconds(after);
  }
  override get name(): string {
    return "Retry";
  }
}

/** Thrown by a handler: the message becomes a dead letter at once. */
export class Dead extends Error {
  override get name(): string {
    return "Dead";
  }
}

/** A message of a queue, in the hands of a handler. */
export class Job<T> {
  readonly value!: T;
  readonly position: number;
  /** When the message was stored: RFC 3339. */
  readonly time: string;
  readonly key: string | undefined;
  readonly headers: Headers | undefined;
  /** 1 for the first delivery of the message. */
  readonly attempt: number;
  private controller_: AbortController | undefined;
  private reason_: unknown;

  /** @internal */
  constructor(private readonly raw_: Delivery) {
    this.position = raw_.position;
    this.time = raw_.time;
    this.key = raw_.key;
    this.headers = raw_.headers;
    this.attempt = raw_.attempt;
  }

  /** @internal */
  get delivery_(): string {
    return this.raw_.delivery;
  }

  /** Is aborted when the lease is lost, or the worker stops and does not wait longer. The result of the handler counts no more then. */
  get signal(): AbortSignal {
    if (!this.controller_) {
      this.controller_ = new AbortController();
      if (this.lost) this.controller_.abort(this.reason_);
    }
    return this.controller_.signal;
  }

  /** Whether the result of the handler counts no more. */
  get lost(): boolean {
    return this.reason_ !== undefined;
  }

  /** @internal */
  lose_(reason: Error = errorOf({ code: "lease_lost", message: "the lease has ended: another consumer gets the message" })): void {
    if (this.lost) return;
    this.reason_ = reason;
    this.controller_?.abort(reason);
  }

  /** Ends the handler: the message is delivered again after this time. */
  retry(after: Duration, reason?: string): never {
    throw new Retry(after, reason);
  }

  /** Ends the handler: the message becomes a dead letter at once. */
  dead(reason: string): never {
    throw new Dead(reason);
  }
}
