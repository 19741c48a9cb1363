import { jitter } from "./duration.js";
import { connectionLost, errorOf, SignedOut, type TidewireError, Timeout } from "./errors.js";
import type { Link } from "./outbox.js";

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

/** Gets a token. `expired` is true if the server has refused the one before. Throw {@link SignedOut} to end the client. */
export type TokenSource = (about: { expired: boolean; signal: AbortSignal }) => string | Promise<string>;

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
  onFrame(message: any): void;
  onUp(): void;
  onDown(): void;
  onState(state: State): void;
  onEnd(error: TidewireError | undefined): void;
  failed(error: unknown): void;
}

const protocol = "tidewire.v1";
const attemptTime = 10_000;
const stable = 10_000;
const silence = 35_000;

/** One WebSocket after another to the same server, until the client is closed. */
export class Connection implements Link {
  state: State = { name: "idle" };
  hello: Hello | undefined;
  up = false;
  private socket: Socket | undefined;
  private attempt: AbortController | undefined;
  private pauses = 0;
  private since = 0;
  private refused = false;
  private renewing = false;
  private headerToken = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private told = false;
  private heard = 0;
  private silent = false;
  private forget: (() => void) | undefined;

  constructor(
    private readonly url: string,
    private readonly Class: SocketClass,
    private readonly inHeader: boolean,
    private readonly token: string | TokenSource | undefined,
    private readonly on: Handlers,
  ) {}

  get maxBytes(): number {
    return this.hello?.limits.message_bytes ?? Infinity;
  }

  need(): void {
    if (this.state.name !== "idle") return;
    this.forget = onWake(() => this.wake());
    void this.connect();
  }

  send(text: string): void {
    if (this.up) this.socket!.send(text);
  }

  private set(state: State): void {
    this.state = state;
    this.on.onState(state);
  }

  private async connect(): Promise<void> {
    const attempt = (this.attempt = new AbortController());
    const { signal } = attempt;
    this.told = false;
    this.set({ name: "connecting" });
    this.timer = setTimeout(() => this.lost(new Timeout("the attempt to connect took longer than 10 s")), attemptTime);
    try {
      const token = await this.askToken(signal);
      if (!signal.aborted) this.open(token, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof SignedOut) this.end(error);
      else this.lost(asError(error));
    }
  }

  private askToken(signal: AbortSignal): string | undefined | Promise<string> {
    const expired = this.refused;
    this.refused = false;
    return typeof this.token === "function" ? this.token({ expired, signal }) : this.token;
  }

  private open(token: string | undefined, signal: AbortSignal): void {
    this.headerToken = token !== undefined && this.inHeader;
    const options = this.headerToken ? { headers: { Authorization: `Bearer ${token}` } } : undefined;
    const socket = (this.socket = options ? new this.Class(this.url, [protocol], options) : new this.Class(this.url, [protocol]));
    let failure: string | undefined;
    socket.onmessage = ({ data }: { data: string }) => {
      if (!signal.aborted) this.read(data, token);
    };
    socket.onerror = (event: { message?: string }) => void (failure = event.message);
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      if (!signal.aborted) this.closed(code, String(reason ?? ""), failure);
    };
  }

  private read(data: string, token: string | undefined): void {
    this.heard = Date.now();
    this.silent = false;
    try {
      const message = JSON.parse(data);
      if (this.up && message.id !== "auth" && message.type !== "expiring") this.on.onFrame(message);
      else this.handshake(message, token);
    } catch (error) {
      this.on.failed(error);
      this.lost(asError(error));
    }
  }

  private handshake(message: any, token: string | undefined): void {
    if (message.type === "hello") {
      this.hello = message;
      if (token === undefined || this.headerToken) this.begin();
      else this.auth(token);
    } else if (message.type === "expiring") {
      this.renew();
    } else if (message.id === "auth") {
      this.authenticated(message);
    }
  }

  private auth(token: string): void {
    this.socket!.send(JSON.stringify({ type: "auth", id: "auth", token }));
  }

  private authenticated(answer: any): void {
    const refused = answer.type === "error";
    this.refused = refused;
    if (!this.up) {
      if (refused) this.lost(errorOf(answer));
      else this.begin();
    }
  }

  /** Sends a new token on the connection that there is. */
  renew(): boolean {
    const { token } = this;
    if (typeof token !== "function") return false;
    if (!this.renewing && this.up) {
      this.renewing = true;
      void this.sendNewToken(this.attempt!.signal).finally(() => (this.renewing = false));
    }
    return true;
  }

  private async sendNewToken(signal: AbortSignal): Promise<void> {
    try {
      const token = await this.askToken(signal);
      if (!signal.aborted) this.auth(token!);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof SignedOut) this.end(error);
      else this.on.failed(error);
    }
  }

  private begin(): void {
    clearTimeout(this.timer);
    this.up = true;
    this.since = Date.now();
    this.expectSign(silence);
    this.set({ name: "connected" });
    this.on.onUp();
  }

  /** Asks for a sign of life when nothing has come for `ms`. */
  private expectSign(ms: number): void {
    this.timer = setTimeout(() => {
      const left = this.heard + silence - Date.now();
      if (left > 0) this.expectSign(left);
      else this.probe(10_000);
    }, ms);
  }

  private probe(within: number): void {
    clearTimeout(this.timer);
    this.silent = true;
    this.send('{"type":"ping"}');
    this.timer = setTimeout(() => {
      if (this.silent) this.lost(connectionLost("nothing has arrived for too long"));
      else this.expectSign(silence);
    }, within);
  }

  private wake(): void {
    if (this.up) this.probe(5_000);
    else if (this.state.name === "waiting" && !this.told) this.again();
  }

  private again(): void {
    clearTimeout(this.timer);
    void this.connect();
  }

  private closed(code: number, reason: string, failure: string | undefined): void {
    const error = connectionLost(failure ?? `the connection was closed: ${code}${reason && ` ${reason}`}`);
    if (code === 4403) return this.end(new SignedOut(reason || undefined));
    // A server that refuses the header says so in the answer to the handshake, which only some classes show.
    if (code === 4401 || (failure?.includes("401") && this.headerToken)) this.refused = true;
    let pause: number | undefined;
    if (code === 1001) {
      const told = /retry_after_ms=(\d+)/.exec(reason);
      this.told = told !== null;
      pause = told ? Number(told[1]) : Math.random() * 2_000;
    }
    this.lost(error, pause, code === 4429 ? 5_000 : 0);
  }

  /** Ends this connection or attempt, and begins another one after a pause. */
  private lost(error: Error, pause?: number, more = 0): void {
    this.cut();
    if (this.since && Date.now() - this.since >= stable) this.pauses = 0;
    this.since = 0;
    const retryIn = (pause ?? jitter(this.pauses)) + more;
    this.pauses++;
    this.timer = setTimeout(() => this.again(), retryIn);
    this.set({ name: "waiting", retryAt: new Date(Date.now() + retryIn), retryIn, error });
  }

  private cut(): void {
    clearTimeout(this.timer);
    this.attempt?.abort();
    const { socket, up } = this;
    this.socket = undefined;
    this.up = false;
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
    if (up) this.on.onDown();
  }

  /** Ends for ever. */
  end(error?: TidewireError): void {
    if (this.state.name === "closed") return;
    this.forget?.();
    this.cut();
    this.set(error ? { name: "closed", error } : { name: "closed" });
    this.on.onEnd(error);
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** Calls wake when a page is seen again, or the network is back. */
function onWake(wake: () => void): (() => void) | undefined {
  if (typeof document === "undefined" || typeof addEventListener !== "function") return;
  const seen = () => {
    if (document.visibilityState === "visible") wake();
  };
  addEventListener("online", wake);
  addEventListener("pageshow", wake);
  document.addEventListener("visibilitychange", seen);
  return () => {
    removeEventListener("online", wake);
    removeEventListener("pageshow", wake);
    document.removeEventListener("visibilitychange", seen);
  };
}
