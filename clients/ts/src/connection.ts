import { pause } from "./duration.js";
import { connectionLost, errorOf, must, SignedOut, timedOut, type TidewireError } from "./errors.js";
import type { Link } from "./outbox.js";
import { Renewal, type Token } from "./token.js";

/** The state of a client. `waiting` has the time of the next attempt, and why the connection before has ended. */
export type State =
  | { readonly name: "idle" }
  | { readonly name: "connecting" }
  | { readonly name: "connected" }
  | { readonly name: "waiting"; readonly retryAt: Date; readonly retryIn: number; readonly error: Error }
  | { readonly name: "closed"; readonly error?: Error };

/** What the server says of itself when a connection begins. */
export interface Hello {
  version?: string;
  protocol: string;
  now_ms: number;
  authenticated: boolean;
  features: string[];
  limits: Record<string, number> & { message_bytes: number };
}

/** The part of a WebSocket that is used, of a browser or of the package `ws`. */
export interface Socket {
  onopen: any;
  onmessage: any;
  onclose: any;
  onerror: any;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}

/** A class of WebSockets: that of the platform, or of the package `ws`. */
export type SocketClass = new (url: string, protocols: string[], options?: any) => Socket;

export interface Handlers {
  onFrame_(message: any): void;
  onUp_(): void;
  onDown_(): void;
  onState_(state: State): void;
  onEnd_(error: TidewireError | undefined): void;
  emit_(name: "error", error: unknown): boolean;
}

const protocol = "tidewire.v1";
const attemptTime = 10_000;
const stable = 10_000;
const silence = 35_000;

/** One WebSocket after another to the same server, until the client is closed. */
export class Connection implements Link {
  state_: State = { name: "idle" };
  hello_: Hello | undefined;
  up_ = false;
  failure_: Error | undefined;
  private socket_: Socket | undefined;
  private attempt_: AbortController | undefined;
  private pauses_ = 0;
  private since_ = 0;
  private renewal_: Renewal | undefined;
  private headerToken_ = false;
  private timer_: ReturnType<typeof setTimeout> | undefined;
  private told_ = false;
  private heard_ = 0;
  private readonly life_ = new AbortController();
  /** The address, without what may be secret. */
  private readonly where_: string;

  constructor(
    private readonly url_: string,
    private readonly Class_: SocketClass,
    private readonly inHeader_: boolean,
    private readonly token_: Token,
    private readonly on_: Handlers,
  ) {
    const { origin, pathname } = new URL(url_);
    this.where_ = origin + pathname;
  }

  get maxBytes_(): number {
    return this.hello_?.limits.message_bytes ?? Infinity;
  }

  need_(): void {
    if (this.state_.name !== "idle") return;
    onWake(() => this.wake_(), this.life_.signal);
    void this.connect_();
  }

  send_(text: string): void {
    if (this.up_) this.socket_!.send(text);
  }

  private set_(state: State): void {
    this.state_ = state;
    this.on_.onState_(state);
  }

  private async connect_(): Promise<void> {
    const { signal } = (this.attempt_ = new AbortController());
    this.told_ = false;
    this.set_({ name: "connecting" });
    this.timer_ = setTimeout(() => this.lost_(timedOut(`no connection to ${this.where_} within 10 s`)), attemptTime);
    try {
      const token = await this.token_.ask_(signal);
      if (!signal.aborted) this.open_(token, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof SignedOut) this.end_(error);
      else this.lost_(asError(error));
    }
  }

  private open_(token: string | undefined, signal: AbortSignal): void {
    this.headerToken_ = token !== undefined && this.inHeader_;
    const options = this.headerToken_ ? { headers: { Authorization: `Bearer ${token}` } } : undefined;
    const socket = (this.socket_ = new this.Class_(this.url_, [protocol], options));
    let failure: string | undefined;
    socket.onmessage = ({ data }: { data: string }) => {
      if (!signal.aborted) this.read_(data, token);
    };
    // An error of several addresses has no message.
    socket.onerror = ({ message, error }: { message?: string; error?: { code?: string } }) => void (failure = message || error?.code);
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      if (!signal.aborted) this.closed_(code, String(reason ?? ""), failure);
    };
  }

  private read_(data: string, token: string | undefined): void {
    this.heard_ = Date.now();
    let type: unknown;
    try {
      const message = JSON.parse(data);
      ({ type } = message);
      if (type === "error") must(message, "code", (code) => typeof code === "string");
      if (this.up_ && message.id !== "auth" && type !== "expiring") this.on_.onFrame_(message);
      else this.handshake_(message, token);
    } catch (error) {
      this.lost_(connectionLost(`the server has sent a frame that is not valid (${type}): ${asError(error).message}`, error));
    }
  }

  private handshake_(message: any, token: string | undefined): void {
    if (message.type === "hello") {
      must(message.limits ?? {}, "message_bytes");
      this.hello_ = message;
      if (token === undefined || this.headerToken_) this.begin_();
      else this.auth_(token);
    } else if (message.type === "expiring") {
      this.renew_();
    } else if (message.id === "auth") {
      this.authenticated_(message);
    }
  }

  private auth_(token: string): void {
    this.socket_!.send(JSON.stringify({ type: "auth", id: "auth", token }));
  }

  private authenticated_(answer: any): void {
    const refused = answer.type === "error";
    this.token_.refused_ = refused;
    if (!this.up_) {
      if (refused) this.lost_(errorOf(answer));
      else this.begin_();
    } else if (refused) {
      this.renewal_?.again_(errorOf(answer));
    } else {
      this.endRenewal_();
    }
  }

  /** Sends a new token on the connection that there is. It is false if there is no way to get one. */
  renew_(): boolean {
    if (!this.token_.renewable_) return false;
    if (this.up_) this.renewal_ ??= new Renewal(this.token_, (token) => this.auth_(token), (error) => this.notRenewed_(error));
    return true;
  }

  /** The token that is in use is still good. If it ends before there is another one, the next attempt has the error. */
  private notRenewed_(error: unknown): void {
    if (error instanceof SignedOut) this.end_(error);
    else this.on_.emit_("error", error);
  }

  private endRenewal_(): void {
    this.renewal_?.end_();
    this.renewal_ = undefined;
  }

  private begin_(): void {
    clearTimeout(this.timer_);
    this.up_ = true;
    this.failure_ = undefined;
    this.since_ = Date.now();
    this.expectSign_(silence);
    this.set_({ name: "connected" });
    this.on_.onUp_();
  }

  /** Asks for a sign of life when nothing has come for `ms`. */
  private expectSign_(ms: number): void {
    this.timer_ = setTimeout(() => {
      const left = this.heard_ + silence - Date.now();
      if (left > 0) this.expectSign_(left);
      else this.probe_(10_000);
    }, ms);
  }

  private probe_(within: number): void {
    clearTimeout(this.timer_);
    const asked = Date.now();
    this.send_('{"type":"ping"}');
    this.timer_ = setTimeout(() => {
      if (this.heard_ < asked) this.lost_(connectionLost("the server is silent"));
      else this.expectSign_(silence);
    }, within);
  }

  private wake_(): void {
    if (this.up_) this.probe_(5_000);
    else if (this.state_.name === "waiting" && !this.told_) this.again_();
  }

  private again_(): void {
    clearTimeout(this.timer_);
    void this.connect_();
  }

  private closed_(code: number, reason: string, failure: string | undefined): void {
    const why = failure ?? `closed with ${code} ${reason}`.trim();
    const error = connectionLost(this.up_ ? `the connection has ended: ${why}` : `no connection to ${this.where_}: ${why}`);
    if (code === 4403) return this.end_(new SignedOut(reason || undefined));
    // A server that refuses the header says so in the answer to the handshake, which only some classes show.
    if (code === 4401 || (failure?.includes("401") && this.headerToken_)) this.token_.refused_ = true;
    let wait: number | undefined;
    if (code === 1001) {
      const told = /retry_after_ms=(\d+)/.exec(reason);
      this.told_ = told !== null;
      wait = told ? Number(told[1]) : Math.random() * 2_000;
    }
    this.lost_(error, wait, code === 4429 ? 5_000 : 0);
  }

  /** Ends this connection or attempt, and begins another one after a pause. */
  private lost_(error: Error, wait?: number, more = 0): void {
    this.failure_ = error;
    this.cut_();
    if (this.since_ && Date.now() - this.since_ >= stable) this.pauses_ = 0;
    this.since_ = 0;
    const retryIn = pause(wait, this.pauses_++) + more;
    this.timer_ = setTimeout(() => this.again_(), retryIn);
    this.set_({ name: "waiting", retryAt: new Date(Date.now() + retryIn), retryIn, error });
  }

  private cut_(): void {
    clearTimeout(this.timer_);
    this.attempt_?.abort();
    this.endRenewal_();
    const socket = this.socket_;
    const up = this.up_;
    this.socket_ = undefined;
    this.up_ = false;
    if (socket) {
      // A class may report the end of an attempt as an error, which nobody needs any more.
      socket.onmessage = socket.onclose = null;
      socket.onerror = () => {};
      try {
        socket.close(1000);
      } catch {
        // It was not open.
      }
    }
    if (up) this.on_.onDown_();
  }

  /** Ends for ever. */
  end_(error?: TidewireError): void {
    if (this.state_.name === "closed") return;
    this.life_.abort();
    this.cut_();
    this.set_(error ? { name: "closed", error } : { name: "closed" });
    this.on_.onEnd_(error);
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** Calls wake when a page is seen again, or the network is back, until the signal is aborted. */
function onWake(wake: () => void, signal: AbortSignal): void {
  if (typeof document === "undefined" || typeof addEventListener !== "function") return;
  addEventListener("online", wake, { signal });
  addEventListener("pageshow", wake, { signal });
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && wake(), { signal });
}
