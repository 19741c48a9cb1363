import { byteLength } from "./codec.js";
import { pause, quietTimer } from "./duration.js";
import { closed, connectionLost, errorOf, OutcomeUnknown, outcomeUnknown, type TidewireError } from "./errors.js";
import { Caller, deadlineOf, Request, type Answer, type CallOptions, type Spec } from "./request.js";
import { soon } from "./tick.js";

/** What the outbox needs of a connection. */
export interface Link {
  readonly up_: boolean;
  /** Why there is no connection. */
  readonly failure_: Error | undefined;
  /** How large a frame may be, or Infinity as long as that is not known. */
  readonly maxBytes_: number;
  /** Connects, if that has not begun. */
  need_(): void;
  send_(text: string): void;
  /** Gets a new token. It is false if there is no way to get one. */
  renew_(): boolean;
}

/** The bounds of what waits for an answer. */
export interface Bounds {
  timeout_: number;
  maxPending_: number;
  maxPendingBytes_: number;
}

/** A pause that the server wants for the requests of a lane. */
interface Hold {
  attempts_: number;
  timer_?: ReturnType<typeof setTimeout> | undefined;
}

// What these say holds for every message of a batch: to send each one alone would change nothing.
const aboutStream = /^(forbidden|not_found|not_served|queue_stream|unauthenticated|invalid_name)$/;

/** The requests of a client: in the order of their calls, bounded on the wire, sent again when that is right. */
export class Outbox {
  /** Called when calls that come later have to go out in a later request. */
  onSeal_ = (): void => {};
  private readonly client_ = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
  private queue_: Request[] = [];
  private readonly inflight_ = new Map<number, Request>();
  private bytes_ = 0;
  private readonly holds_ = new Map<string, Hold>();
  // Lanes whose requests wait for something else.
  private readonly shut_ = new Set<string>();
  private lastId_ = 0;
  private calls_ = 0;
  private sequence_ = 0;
  private scheduled_ = false;
  private sweep_: ReturnType<typeof setTimeout> | undefined;
  private sweepAt_ = Infinity;
  private over_: TidewireError | undefined;
  private emptied_: (() => void) | undefined;

  constructor(private readonly link_: Link, private readonly bounds_: Bounds) {}

  /** Makes a request with one call. */
  call_<R>(options: CallOptions, spec: Spec): Promise<R> {
    this.onSeal_();
    const request = this.request_(spec);
    const caller = this.add_<R>(request, options);
    this.submit_(request);
    return caller.promise_;
  }

  /**
   * A request that stores something: it is sent again until it is answered, and stored once, by its client and sequence. `body` is the end of its frame, and may come from the calls.
   */
  storing_(type: string, name: string, body: (request: Request) => string, read: Spec["read_"], numbered = true): Spec {
    return {
      lane_: `${type} ${name}`,
      mode_: "repeat",
      effect_: true,
      write_: (request) => `{"type":"${type}","id":${request.id_},${numbered ? `"client":"${this.client_}","sequence":${this.sequence_++},` : ""}${body(request)}`,
      read_: read,
    };
  }

  /** A request that repeats as long as it is not answered, and changes nothing twice. */
  ask_<R = Answer>(options: CallOptions, lane: string, fields: object, read = (answer: Answer): unknown => answer): Promise<R> {
    return this.call_(options, { lane_: lane, mode_: "repeat", write_: ({ id_ }) => JSON.stringify({ id: id_, ...fields }), read_: read });
  }

  /** A request that means something on this connection alone. */
  bound_<R = Answer>(fields: object, more: Partial<Spec> = {}, options: CallOptions = {}): Promise<R> {
    const write: Spec["write_"] = ({ id_ }) => JSON.stringify({ id: id_, ...fields });
    return this.call_(options, { lane_: "", mode_: "bound", write_: write, read_: (answer) => answer, lost_: connectionLost, ...more });
  }

  request_(spec: Spec): Request {
    return new Request(++this.lastId_, spec);
  }

  /** Adds a call to a request that is not sent. */
  add_<R>(request: Request, options: CallOptions): Caller<R> {
    const caller = new Caller<R>(this.calls_++, deadlineOf(options, this.bounds_.timeout_), options.signal);
    request.callers_.push(caller);
    caller.watch_(() => {
      this.forget_(request);
      this.schedule_();
    });
    this.sweepBy_(caller.deadline_);
    return caller;
  }

  submit_(request: Request): void {
    const { mode_, lost_, ahead_ } = request.spec_;
    if (mode_ === "bound") {
      if (!this.link_.up_) return request.fail_(lost_!());
    } else {
      if (this.over_) return request.fail_(this.over_);
      this.link_.need_();
    }
    if (ahead_) this.queue_.unshift(request);
    else this.queue_.push(request);
    this.schedule_();
  }

  /** Sends what waits at the end of this turn of the event loop. */
  schedule_(): void {
    if (this.scheduled_) return;
    this.scheduled_ = true;
    soon(() => {
      this.scheduled_ = false;
      this.onSeal_();
      this.pump_();
    });
  }

  private pump_(): void {
    const queue = this.queue_;
    let full = false;
    this.queue_ = [];
    for (let i = 0; i < queue.length; i++) {
      const request = queue[i]!;
      if (!request.waiting_) continue;
      // Requests that mean something on this connection alone wait for no room, since they settle what others have sent.
      const bound = request.spec_.mode_ === "bound";
      full ||= !bound && !this.hasRoom_(request);
      if (!this.link_.up_ || (full && !bound) || this.holds_.get(request.spec_.lane_)?.timer_ || this.shut_.has(request.spec_.lane_)) this.queue_.push(request);
      else if (this.isTooBig_(request)) queue.splice(i + 1, 0, ...this.parts_(request, Math.ceil(request.callers_.length / 2)));
      else this.transmit_(request);
    }
    this.settled_();
  }

  private hasRoom_(request: Request): boolean {
    const { inflight_, bounds_ } = this;
    if (!inflight_.size || !this.link_.up_) return true;
    const room = inflight_.size < bounds_.maxPending_ && this.bytes_ + request.frame_().length <= bounds_.maxPendingBytes_;
    // Calls of it may end before there is room: they must not be in it then.
    if (!room && !request.begun_) request.text_ = undefined;
    return room;
  }

  /** Whether the server does not take the frame. If that has one call, the call fails. */
  private isTooBig_(request: Request): boolean {
    const text = request.frame_();
    const { maxBytes_ } = this.link_;
    const bytes = text.length * 3 > maxBytes_ ? byteLength(text) : 0;
    if (bytes <= maxBytes_) return false;
    if (request.callers_.length === 1) request.fail_(errorOf({ code: "too_big", message: `${bytes} bytes: the server takes ${maxBytes_}` }, request.id_));
    return true;
  }

  /** Makes requests of up to `size` calls each, in the place of one. There are none for a single call. */
  private parts_({ callers_, spec_ }: Request, size: number): Request[] {
    const parts: Request[] = [];
    for (let i = 0; callers_.length > 1 && i < callers_.length; i += size) {
      const part = this.request_(spec_);
      part.callers_.push(...callers_.slice(i, i + size));
      parts.push(part);
    }
    return parts;
  }

  private transmit_(request: Request): void {
    const text = request.frame_();
    request.sent_ = request.begun_ = true;
    this.inflight_.set(request.id_, request);
    this.bytes_ += text.length;
    this.link_.send_(text);
  }

  /** Takes the answer to a request. */
  answer_(answer: Answer): void {
    const request = this.inflight_.get(answer.id);
    if (!request) return;
    const ok = answer.type === "ok";
    // If the answer is not valid, this throws, the connection ends, and the request is still there to be sent again.
    if (ok) request.ok_(answer);
    this.remove_(request);
    if (ok) this.release_(request.spec_.lane_);
    else this.refused_(request, answer);
    if (this.queue_.length) this.schedule_();
    else this.settled_();
  }

  private remove_(request: Request): void {
    this.inflight_.delete(request.id_);
    this.bytes_ -= request.frame_().length;
    request.sent_ = false;
  }

  private refused_(request: Request, answer: Answer): void {
    const { code } = answer;
    const { mode_, effect_, lane_ } = request.spec_;
    const unknown = code === "outcome_unknown";
    const error = request.errorOf_(answer);
    if (mode_ === "repeat" && (answer.retryable || (unknown && effect_) || (code === "token_expired" && this.link_.renew_()))) {
      request.last_ = error;
      request.unknown_ ||= unknown;
      this.hold_(lane_, answer.retry_after_ms);
      this.requeue_([request]);
    } else if (aboutStream.test(code) || error instanceof OutcomeUnknown || request.callers_.length === 1) {
      request.fail_(error);
    } else {
      // No message of it should be bad. If one is, it harms no other, but they come after what went out meanwhile.
      this.requeue_(this.parts_(request, 1));
    }
  }

  private hold_(lane: string, told: unknown): void {
    const hold: Hold = this.holds_.get(lane) ?? { attempts_: 0 };
    this.holds_.set(lane, hold);
    hold.timer_ ??= setTimeout(() => {
      hold.timer_ = undefined;
      this.schedule_();
    }, pause(told, hold.attempts_++));
  }

  private release_(lane: string): void {
    clearTimeout(this.holds_.get(lane)?.timer_);
    this.holds_.delete(lane);
  }

  /** Lets the requests of a lane wait until it is opened. */
  shutLane_(lane: string): void {
    this.shut_.add(lane);
  }

  openLane_(lane: string): void {
    if (this.shut_.delete(lane)) this.schedule_();
  }

  /** Puts requests back, in the order of their calls. */
  private requeue_(requests: Request[]): void {
    this.queue_ = [...requests, ...this.queue_].sort((a, b) => a.order_ - b.order_);
    this.schedule_();
  }

  /** Says that the connection has ended. */
  disconnected_(): void {
    const again: Request[] = [];
    for (const request of this.all_()) {
      const { sent_: sent, id_ } = request;
      const { mode_, effect_, lost_ } = request.spec_;
      if (sent) this.remove_(request);
      if (mode_ === "bound") request.fail_(lost_!());
      else if (sent && mode_ === "once") request.fail_(outcomeUnknown("the connection has ended before the answer", id_));
      else if (request.waiting_) again.push(request);
      request.unknown_ ||= !!effect_ && sent;
    }
    this.queue_ = [];
    this.requeue_(again);
    this.settled_();
  }

  /** Takes no more calls of the program. It is fulfilled when nothing waits for an answer. */
  empty_(): Promise<void> {
    this.over_ = closed();
    return new Promise((resolve) => {
      this.emptied_ = resolve;
      this.settled_();
    });
  }

  private all_(): Request[] {
    return [...this.inflight_.values(), ...this.queue_];
  }

  private settled_(): void {
    if (this.emptied_ && !this.all_().some((request) => request.waiting_)) this.emptied_();
  }

  private sweepBy_(deadline: number): void {
    if (deadline >= this.sweepAt_) return;
    clearTimeout(this.sweep_);
    this.sweepAt_ = deadline;
    this.sweep_ = quietTimer(() => this.expire_(), deadline - Date.now());
  }

  private expire_(): void {
    const now = Date.now();
    this.sweepAt_ = Infinity;
    let next = Infinity;
    for (const request of this.all_()) {
      next = Math.min(next, request.expire_(now, this.link_));
      this.forget_(request);
    }
    this.sweepBy_(next);
    this.schedule_();
  }

  /** Nobody waits for a request any more: it takes no room, and an answer that comes later is for nobody. */
  private forget_(request: Request): void {
    if (request.sent_ && !request.waiting_) this.remove_(request);
  }

  /** Fails everything that waits, and all later calls. */
  end_(error: TidewireError): void {
    this.over_ = error;
    clearTimeout(this.sweep_);
    for (const lane of this.holds_.keys()) this.release_(lane);
    for (const request of this.all_()) request.fail_(error);
    this.queue_ = [];
    this.inflight_.clear();
    this.settled_();
  }
}
