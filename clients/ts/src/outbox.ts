import { byteLength } from "./codec.js";
import { jitter, quietTimer } from "./duration.js";
import { Closed, connectionLost, OutcomeUnknown, tooBig, type TidewireError } from "./errors.js";
import { Caller, deadlineOf, Request, type Answer, type CallOptions, type Spec } from "./request.js";
import { soon } from "./tick.js";

/** What the outbox needs of a connection. */
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

/** The bounds of what waits for an answer. */
export interface Bounds {
  timeout: number;
  maxPending: number;
  maxPendingBytes: number;
}

/** A pause that the server wants for the requests of a lane. */
interface Hold {
  attempts: number;
  timer?: ReturnType<typeof setTimeout> | undefined;
}

// What these say holds for every message of a batch: to send each one alone would change nothing.
const aboutStream = /^(forbidden|not_found|not_served|queue_stream|unauthenticated|invalid_name)$/;

/** The requests of a client: in the order of their calls, bounded on the wire, sent again when that is right. */
export class Outbox {
  /** Called when calls that come later have to go out in a later request. */
  onSeal = (): void => {};
  private readonly client = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
  private queue: Request[] = [];
  private readonly inflight = new Map<number, Request>();
  private bytes = 0;
  private readonly holds = new Map<string, Hold>();
  private lastId = 0;
  private sequence = 0;
  private scheduled = false;
  private sweep: ReturnType<typeof setTimeout> | undefined;
  private sweepAt = Infinity;
  private over: TidewireError | undefined;
  private emptied: (() => void) | undefined;

  constructor(private readonly link: Link, private readonly bounds: Bounds) {}

  /** The fields that let the server know a repetition, as JSON. Each call is another request. */
  identity(): string {
    return `"client":"${this.client}","sequence":${this.sequence++},`;
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
  ask<R = Answer>(options: CallOptions, lane: string, fields: object, read = (answer: Answer): unknown => answer): Promise<R> {
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
    this.sweepBy(caller.deadline);
    return caller;
  }

  submit(request: Request): void {
    const { mode, lost, ahead } = request.spec;
    if (mode === "bound") {
      if (!this.link.up) return request.fail(lost!());
    } else {
      if (this.over) return request.fail(this.over);
      this.link.need();
    }
    if (ahead) this.queue.unshift(request);
    else this.queue.push(request);
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
    const { queue } = this;
    let full = false;
    this.queue = [];
    for (const request of queue) {
      if (!request.waiting) continue;
      // Requests that mean something on this connection alone wait for no room, since they settle what others have sent.
      const bound = request.spec.mode === "bound";
      full ||= !bound && !this.hasRoom(request);
      if (!this.link.up || (full && !bound) || this.holds.get(request.spec.lane)?.timer) this.queue.push(request);
      else this.transmit(request);
    }
    this.settled();
  }

  private hasRoom(request: Request): boolean {
    const { inflight, bounds } = this;
    if (!inflight.size || !this.link.up) return true;
    const room = inflight.size < bounds.maxPending && this.bytes + request.frame().length <= bounds.maxPendingBytes;
    // Calls of it may end before there is room: they must not be in it then.
    if (!room && !request.begun) request.text = undefined;
    return room;
  }

  private transmit(request: Request): void {
    const text = request.frame();
    const { link } = this;
    const bytes = text.length * 3 > link.maxBytes ? byteLength(text) : 0;
    if (bytes > link.maxBytes) {
      if (!this.split(request)) request.fail(tooBig(bytes, link.maxBytes, request.id));
      return;
    }
    request.sent = request.begun = true;
    this.inflight.set(request.id, request);
    this.bytes += text.length;
    link.send(text);
  }

  /** Takes the answer to a request. */
  answer(answer: Answer): void {
    const request = this.inflight.get(answer.id);
    if (!request) return;
    this.remove(request);
    if (answer.type === "ok") {
      this.release(request.spec.lane);
      request.ok(answer);
    } else {
      this.refused(request, answer);
    }
    if (this.queue.length) this.schedule();
    else this.settled();
  }

  private remove(request: Request): void {
    this.inflight.delete(request.id);
    this.bytes -= request.frame().length;
    request.sent = false;
  }

  private refused(request: Request, answer: Answer): void {
    const { code } = answer;
    const { mode, effect, lane } = request.spec;
    const unknown = code === "outcome_unknown";
    const error = request.errorOf(answer);
    if (mode === "repeat" && (answer.retryable || (unknown && effect) || (code === "token_expired" && this.link.renew()))) {
      request.last = error;
      request.unknown ||= unknown;
      this.hold(lane, answer.retry_after_ms);
      this.requeue([request]);
    } else if (aboutStream.test(code) || error instanceof OutcomeUnknown || !this.split(request)) {
      request.fail(error);
    }
  }

  /** Makes a request of each call, so that one bad message harms no other. */
  private split({ callers, spec }: Request): boolean {
    if (callers.length < 2) return false;
    for (const caller of callers) {
      const alone = this.request(spec);
      alone.callers.push(caller);
      this.queue.push(alone);
    }
    this.schedule();
    return true;
  }

  private hold(lane: string, told: number | undefined): void {
    const hold: Hold = this.holds.get(lane) ?? { attempts: 0 };
    this.holds.set(lane, hold);
    hold.timer ??= setTimeout(() => {
      hold.timer = undefined;
      this.schedule();
    }, told ?? jitter(hold.attempts++));
  }

  private release(lane: string): void {
    clearTimeout(this.holds.get(lane)?.timer);
    this.holds.delete(lane);
  }

  /** Puts requests back, in the order of their calls. */
  private requeue(requests: Request[]): void {
    this.queue = [...requests, ...this.queue].sort((a, b) => a.id - b.id);
    this.schedule();
  }

  /** Says that the connection has ended. */
  disconnected(): void {
    const again: Request[] = [];
    for (const request of [...this.inflight.values(), ...this.queue]) {
      const { sent, id } = request;
      const { mode, effect, lost } = request.spec;
      if (sent) this.remove(request);
      if (mode === "bound") request.fail(lost!());
      else if (sent && mode === "once") request.fail(new OutcomeUnknown("the connection has ended before the answer", id));
      else if (request.waiting) again.push(request);
      request.unknown ||= !!effect && sent;
    }
    this.queue = [];
    this.requeue(again);
    this.settled();
  }

  /** Takes no more calls of the program. It is fulfilled when nothing waits for an answer. */
  empty(): Promise<void> {
    this.over = new Closed();
    return new Promise((resolve) => {
      this.emptied = resolve;
      this.settled();
    });
  }

  private all(): Request[] {
    return [...this.inflight.values(), ...this.queue];
  }

  private settled(): void {
    if (this.emptied && !this.all().some((request) => request.waiting)) this.emptied();
  }

  private sweepBy(deadline: number): void {
    if (deadline >= this.sweepAt) return;
    clearTimeout(this.sweep);
    this.sweepAt = deadline;
    this.sweep = quietTimer(() => this.expire(), deadline - Date.now());
  }

  private expire(): void {
    const now = Date.now();
    this.sweepAt = Infinity;
    this.sweepBy(Math.min(...this.all().map((request) => request.expire(now))));
    this.settled();
  }

  /** Fails everything that waits, and all later calls. */
  end(error: TidewireError): void {
    this.over = error;
    clearTimeout(this.sweep);
    for (const lane of this.holds.keys()) this.release(lane);
    for (const request of this.all()) request.fail(error);
    this.queue = [];
    this.inflight.clear();
    this.settled();
  }
}
