import { Batcher } from "./batcher.js";
import type { Typed } from "./codec.js";
import { Connection, type SocketClass, type State } from "./connection.js";
import type { Core, FeedTarget, Resumed } from "./core.js";
import { count, milliseconds, within, type Duration } from "./duration.js";
import { Emitter, surface } from "./emitter.js";
import { closed, type TidewireError } from "./errors.js";
import { Events } from "./events.js";
import { Outbox } from "./outbox.js";
import { Queue } from "./queue.js";
import { RoomEntry } from "./room.js";
import { Stream } from "./stream.js";
import { Token, type TokenSource } from "./token.js";

export interface Options {
  /** A token, or a function that gets one: before each attempt to connect, and before the one that is in use ends. */
  token?: string | TokenSource;
  /** An API key, in place of a token. */
  apiKey?: string;
  /** The class of WebSockets, where there is no global one: that of the package `ws`. */
  WebSocket?: unknown;
  /** How long a request may take, with all its attempts: 30 s unless given. */
  timeout?: Duration;
  /** Publishes of one stream in one turn of the event loop go as one request, unless this is false. */
  batch?: boolean;
  /** How many requests may wait for an answer: 1,000 unless given. Further ones wait here. */
  maxPending?: number;
  /** How large these may be together: 4 MiB unless given. */
  maxPendingBytes?: number;
}

export interface ClientEvents {
  /** The state of the connection has changed. */
  state: State;
  /** An error that no call can have, such as one of a listener of the program. Without a listener it is an unhandled rejection. */
  error: unknown;
  /** A program on the server's side has sent this to the user of this client. It is not stored. */
  notice: Record<string, unknown>;
}

/** Makes a client. It connects when it is first used, and again whenever that is needed, until it is closed. */
export const connect = (url: string | URL, options: Options = {}): Tidewire => new Tidewire(url, options);

/** A client: one connection for streams, queues, rooms and events. */
export class Tidewire extends Emitter<ClientEvents> {
  /** @internal */
  readonly feeds_ = new Map<string, FeedTarget>();
  /** @internal */
  readonly workers_: Core["workers_"] = new Map();
  /** @internal */
  readonly rooms_: Core["rooms_"] = new Map();
  /** @internal */
  readonly resumed_ = new Set<Resumed>();
  /** @internal */
  readonly outbox_: Outbox;
  private readonly connection_: Connection;
  private readonly batcher_: Batcher;
  private names_ = 0;
  private closing_: Promise<void> | undefined;

  /** Use {@link connect}. @internal */
  constructor(url: string | URL, { token, apiKey, WebSocket, timeout = 30_000, batch = true, maxPending = 1_000, maxPendingBytes = 4 << 20 }: Options) {
    super();
    this.failed_ = (error) => {
      if (!this.emit_("error", error)) surface(error);
    };
    this.connection_ = new Connection(address(url), socketClass(WebSocket), !!WebSocket, new Token(token ?? apiKey), this);
    this.outbox_ = new Outbox(this.connection_, {
      timeout_: milliseconds(timeout),
      maxPending_: count("maxPending", maxPending),
      maxPendingBytes_: count("maxPendingBytes", maxPendingBytes),
    });
    this.batcher_ = new Batcher(this.outbox_, batch);
  }

  /** What the connection does now. */
  get state(): State {
    return this.connection_.state_;
  }

  /** A stream of messages. Its payloads are JSON, unless a codec or schema says otherwise. */
  stream<T = any>(name: string, typed: Typed<T> = {}): Stream<T> {
    return new Stream(this, this.batcher_, name, typed);
  }

  /** A queue of messages for workers. */
  queue<T = any>(name: string, typed: Typed<T> = {}): Queue<T> {
    return new Queue(this, name, typed);
  }

  /** A room. */
  room(name: string): RoomEntry {
    return new RoomEntry(this, name);
  }

  /** An event store: the default one, or the one of this name. */
  events(store?: string): Events {
    return new Events(this, store);
  }

  /** @internal */
  get up_(): boolean {
    return this.connection_.up_;
  }

  /** @internal */
  send_(message: object): void {
    this.connection_.send_(JSON.stringify(message));
  }

  /** @internal */
  name_(): string {
    return `${++this.names_}`;
  }

  /** @internal */
  onFrame_(message: any): void {
    const { type, id, subscription, queue } = message;
    if (id !== undefined && (type === "ok" || type === "error")) this.outbox_.answer_(message);
    else if (subscription !== undefined) this.feeds_.get(subscription)?.take_(message);
    else if (type === "notice") this.emit_("notice", message.message);
    else if (type === "delivery" || (type === "error" && queue !== undefined)) this.workers_.get(queue)?.take_(message);
    else if (type !== "pong") this.rooms_.get(message.room ?? "public")?.take_(message);
  }

  /** @internal */
  onState_(state: State): void {
    this.emit_("state", state);
  }

  /** @internal */
  onUp_(): void {
    for (const each of [...this.resumed_]) each.up_();
    this.outbox_.schedule_();
  }

  /** @internal */
  onDown_(): void {
    this.outbox_.disconnected_();
    for (const each of [...this.resumed_]) each.down_();
  }

  /** @internal */
  onEnd_(error: TidewireError | undefined): void {
    this.outbox_.end_(error ?? closed());
    for (const each of [...this.resumed_]) each.ended_(error);
  }

  /** Waits until all requests are answered, at most 5 s, and ends all iterations, workers and the connection. */
  close(): Promise<void> {
    return (this.closing_ ??= this.shut_());
  }

  private async shut_(): Promise<void> {
    const workers = Promise.all([...this.workers_.values()].map((worker) => worker.stop()));
    await within(5_000, workers.then(() => this.outbox_.empty_()));
    this.connection_.end_();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** The address of the WebSocket. A page may give a path alone. */
function address(url: string | URL): string {
  const base = (globalThis as { location?: { href: string } }).location?.href;
  const full = new URL(url, base);
  full.protocol = full.protocol.replace(/^http/, "ws");
  if (!/^wss?:$/.test(full.protocol)) throw new TypeError(`${full} is no address of a WebSocket`);
  return full.href;
}

function socketClass(given: unknown): SocketClass {
  const found = given ?? (globalThis as { WebSocket?: unknown }).WebSocket;
  if (!found) throw new TypeError("there is no global WebSocket: give the option WebSocket");
  return found as SocketClass;
}
