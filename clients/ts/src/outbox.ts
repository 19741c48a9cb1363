import { byteLength } from "./codec.js";
import { jitter, quietTimer } from "./duration.js";
import { Closed, connectionLost, OutcomeUnknown, tooBig, type TidewireError } from "./errors.js";
import { Fifo } from "./fifo.js";
import { Caller, deadlineOf, Request, type Answer, type CallOptions, type Spec } from "./request.js";
import { soon } from "./tick.js";

/** What the outbox needs of a connection. @internal */
export interface Link {
  readonly up: boolean;
  /** How large a frame may be, or Infinity as long as that is not known. */
  readonly maxBytes: number;
  /** Connects, if that has not begun. */
  need(): void;
  send(text: string): void;
  /** Gets a new token. It is false if there is no way to get one. */
  renew(): boolean;
}

/** The bounds of what waits for an answer. @internal */
export interface Bounds {
  timeout: number;
  maxPending: number;
  maxPendingBytes: number;
}

/** Requests of one lane that the server wants to have later. */
interface Hold {
  attempts: number;
  timer: ReturnType<typeof setTimeout> | undefined;
  requests: Request[];
}

/** The requests of a client: in the order of their calls, bounded on the wire, sent again when that is right. @internal */
export class Outbox {
  private queue = new Fifo<Request>();
  // Requests that mean something on this connection alone. They wait for no room, since what they settle makes room.
  private readonly urgent = new Fifo<Request>();
  private readonly inflight = new Map<number, Request>();
  private bytes = 0;
  private readonly holds = new Map<string, Hold>();
  private lastId = 0;
  private sequence = 0;
  private scheduled = false;
  private sweep: ReturnType<typeof setTimeout> | undefined;
  private sweepAt = Infinity;
  private ended: TidewireError | undefined;
  private closing = false;
  private emptied: (() => void) | undefined;
  /** Called when calls that come later have to go out in a later request. */
  onSeal: () => void = () => {};
  readonly client = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");

  constructor(private readonly link: Link, private readonly bounds: Bounds) {}

  /** The fields that let the server know a repetition. Each call is another request. */
  identity(): string {
    return `"client":"${this.client}","sequence":${this.sequence++}`;
  }

  /** Makes a request with one call. */
  call<R>(options: CallOptions, spec: Spec): Promise<R> {
    this.onSeal();
    const request = this.request(spec);
    const caller = this.add<R>(request, options);
    this.submit(request);
    return caller.promise;
  }

  /** A request that repeats as long as it is not answered, and changes nothing twice. */
  ask<R = Answer>(options: CallOptions, lane: string, fields: object, read: (answer: Answer) => R = (answer) => answer as R): Promise<R> {
    return this.call(options, { lane, mode: "repeat", write: ({ id }) => JSON.stringify({ id, ...fields }), read });
  }

  /** A request that means something on this connection alone. */
  bound<R = Answer>(fields: object, more: Partial<Spec> = {}, options: CallOptions = {}): Promise<R> {
    const write: Spec["write"] = ({ id }) => JSON.stringify({ id, ...fields });
    return this.call(options, { lane: "", mode: "bound", write, read: (answer) => answer, lost: connectionLost, ...more });
  }

  request(spec: Spec): Request {
    return new Request(++this.lastId, spec);
  }

  /** Adds a call to a request that is not sent. */
  add<R>(request: Request, options: CallOptions): Caller<R> {
    const caller = new Caller<R>(deadlineOf(options, this.bounds.timeout), options.signal);
    request.callers.push(caller);
    caller.watch(() => this.settled());
    if (this.ended) caller.fail(this.ended);
    else this.sweepBy(caller.deadline);
    return caller;
  }

  submit(request: Request): void {
    if (this.ended) return;
    if (this.closing && request.spec.mode !== "bound") return request.fail(new Closed(undefined, request.id));
    if (request.spec.mode === "bound") {
      if (!this.link.up) return request.fail(request.spec.lost!());
      this.urgent.push(request);
    } else {
      this.queue.push(request);
      this.link.need();
    }
    this.schedule();
  }

  /** Sends what waits at the end of this turn of the event loop. */
  schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    soon(() => {
      this.scheduled = false;
      this.onSeal();
      this.pump();
    });
  }

  private pump(): void {
    while (this.link.up && this.urgent.length) this.transmit(this.urgent.shift()!);
    while (this.link.up && this.queue.length) {
      const request = this.queue.peek()!;
      const hold = this.holds.get(request.spec.lane);
      if (request.waiting) {
        if (hold?.timer) hold.requests.push(request);
        else if (!this.hasRoom(request)) return;
        else this.transmit(request);
      }
      this.queue.shift();
    }
    this.settled();
  }

  private hasRoom(request: Request): boolean {
    if (this.inflight.size === 0) return true;
    return this.inflight.size < this.bounds.maxPending && this.bytes + request.frame().length <= this.bounds.maxPendingBytes;
  }

  private transmit(request: Request): void {
    const text = request.frame();
    if (text.length * 3 > this.link.maxBytes) {
      const bytes = byteLength(text);
      if (bytes > this.link.maxBytes) {
        if (!this.split(request)) request.fail(tooBig(bytes, this.link.maxBytes, request.id));
        return;
      }
    }
    request.sent = true;
    this.inflight.set(request.id, request);
    this.bytes += text.length;
    this.link.send(text);
  }

  /** Takes the answer to a request. */
  answer(answer: Answer): void {
    const request = this.inflight.get(answer.id);
    if (!request) return;
    this.take(request);
    if (answer.type === "ok") {
      if (this.holds.size) this.release(request.spec.lane, true);
      request.ok(answer);
    } else {
      this.refused(request, answer);
    }
    if (this.queue.length) this.schedule();
    else this.settled();
  }

  private take(request: Request): void {
    this.inflight.delete(request.id);
    this.bytes -= request.text!.length;
    request.sent = false;
  }

  private refused(request: Request, answer: Answer): void {
    const { mode, effect, lane } = request.spec;
    const unknown = answer.code === "outcome_unknown";
    const renewed = answer.code === "token_expired" && this.link.renew();
    const error = request.errorOf(answer);
    if (mode === "repeat" && (answer.retryable || renewed || (unknown && effect))) {
      request.last = error;
      request.unknown ||= unknown;
      this.hold(lane, request, answer.retry_after_ms);
    } else if (!aboutStream.has(answer.code) && !(error instanceof OutcomeUnknown) && this.split(request)) {
      this.schedule();
    } else {
      request.fail(error);
    }
  }

  /** Makes a request of each call, so that one bad message harms no other. */
  private split(request: Request): boolean {
    if (request.callers.length < 2) return false;
    for (const caller of request.callers) {
      const alone = this.request(request.spec);
      alone.callers.push(caller);
      this.queue.push(alone);
    }
    return true;
  }

  private hold(lane: string, request: Request, told: number | undefined): void {
    let hold = this.holds.get(lane);
    if (!hold) this.holds.set(lane, (hold = { attempts: 0, timer: undefined, requests: [] }));
    hold.requests.push(request);
    hold.timer ??= setTimeout(() => this.release(lane, false), told ?? jitter(hold.attempts++));
  }

  /** Ends the pause of a lane. `forget` begins with a short one the next time. */
  private release(lane: string, forget: boolean): void {
    const hold = this.holds.get(lane);
    if (!hold) return;
    clearTimeout(hold.timer);
    hold.timer = undefined;
    if (forget) this.holds.delete(lane);
    this.requeue(hold.requests);
    hold.requests = [];
  }

  /** Puts requests back, in the order of their calls. */
  private requeue(requests: Request[]): void {
    if (!requests.length) return;
    this.queue = new Fifo([...requests, ...this.queue.drain()].sort((a, b) => a.id - b.id));
    this.schedule();
  }

  /** Says that there is a new connection. */
  connected(): void {
    this.schedule();
  }

  /** Says that the connection has ended. */
  disconnected(): void {
    for (const request of this.urgent.drain()) request.fail(request.spec.lost!());
    const again: Request[] = [];
    for (const request of this.inflight.values()) {
      this.take(request);
      const { mode, effect, lost } = request.spec;
      if (mode === "bound") request.fail(lost!());
      else if (mode === "once") request.fail(new OutcomeUnknown("the connection has ended before the answer came", request.id));
      else if (request.waiting) again.push(request);
      request.unknown ||= effect ?? false;
    }
    this.requeue(again);
    this.settled();
  }

  /** Takes no more calls of the program. It is fulfilled when nothing waits for an answer. */
  empty(): Promise<void> {
    this.closing = true;
    return new Promise((resolve) => {
      this.emptied = resolve;
      this.settled();
    });
  }

  private *all(): Iterable<Request> {
    yield* this.inflight.values();
    const queued = this.queue.drain();
    this.queue = new Fifo(queued);
    yield* queued;
    for (const { requests } of this.holds.values()) yield* requests;
  }

  private settled(): void {
    if (!this.emptied || this.urgent.length) return;
    for (const request of this.all()) if (request.waiting) return;
    this.emptied();
  }

  private sweepBy(deadline: number): void {
    if (deadline >= this.sweepAt) return;
    clearTimeout(this.sweep);
    this.sweepAt = deadline;
    this.sweep = quietTimer(() => this.expire(), Math.max(0, deadline - Date.now()));
  }

  private expire(): void {
    this.sweepAt = Infinity;
    const now = Date.now();
    let next = Infinity;
    for (const request of this.all()) next = Math.min(next, request.expire(now));
    this.sweepBy(next);
    this.settled();
  }

  /** Fails everything that waits, and all later calls. */
  end(error: TidewireError): void {
    this.ended = error;
    clearTimeout(this.sweep);
    for (const hold of this.holds.values()) clearTimeout(hold.timer);
    for (const request of [...this.all(), ...this.urgent.drain()]) request.fail(error);
    this.queue.drain();
    this.holds.clear();
    this.inflight.clear();
    this.emptied?.();
  }
}

// What these say holds for every message of a batch: to send each one alone would change nothing.
const aboutStream = new Set(["forbidden", "not_found", "not_served", "queue_stream", "unauthenticated", "invalid_name"]);
