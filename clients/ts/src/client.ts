import { Batcher } from "./batcher.js";
import type { Typed } from "./codec.js";
import { Connection, type SocketClass, type State, type TokenSource } from "./connection.js";
import type { Core, FeedTarget, Resumed } from "./core.js";
import { milliseconds, within, type Duration } from "./duration.js";
import { Emitter, surface } from "./emitter.js";
import { Closed, type TidewireError } from "./errors.js";
import { Events } from "./events.js";
import { Outbox } from "./outbox.js";
import { Queue } from "./queue.js";
import { RoomEntry } from "./room.js";
import { Stream } from "./stream.js";

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
  readonly feeds = new Map<string, FeedTarget>();
  /** @internal */
  readonly workers: Core["workers"] = new Map();
  /** @internal */
  readonly rooms: Core["rooms"] = new Map();
  /** @internal */
  readonly resumed = new Set<Resumed>();
  /** @internal */
  readonly outbox: Outbox;
  private readonly connection: Connection;
  private readonly batcher: Batcher;
  private names = 0;
  private closing: Promise<void> | undefined;

  /** Use {@link connect}. @internal */
  constructor(url: string | URL, { token, apiKey, WebSocket, timeout = 30_000, batch = true, maxPending = 1_000, maxPendingBytes = 4 << 20 }: Options) {
    super();
    this.failed = (error) => {
      if (!this.emit("error", error)) surface(error);
    };
    this.connection = new Connection(address(url), socketClass(WebSocket), !!WebSocket, token ?? apiKey, this);
    this.outbox = new Outbox(this.connection, { timeout: milliseconds(timeout), maxPending, maxPendingBytes });
    this.batcher = new Batcher(this.outbox, batch);
  }

  /** What the connection does now. */
  get state(): State {
    return this.connection.state;
  }

  /** A stream of messages. Its payloads are JSON, unless a codec or schema says otherwise. */
  stream<T = any>(name: string, typed: Typed<T> = {}): Stream<T> {
    return new Stream(this, this.batcher, name, typed);
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
  get up(): boolean {
    return this.connection.up;
  }

  /** @internal */
  send(message: object): void {
    if (this.up) this.connection.send(JSON.stringify(message));
  }

  /** @internal */
  name(): string {
    return `${++this.names}`;
  }

  /** @internal */
  onFrame(message: any): void {
    const { type, id, subscription, queue } = message;
    if (id !== undefined && (type === "ok" || type === "error")) this.outbox.answer(message);
    else if (subscription !== undefined) this.feeds.get(subscription)?.take(message);
    else if (type === "notice") this.emit("notice", message.message);
    else if (type === "delivery" || (type === "error" && queue !== undefined)) this.workers.get(queue)?.take(message);
    else if (type !== "pong") this.rooms.get(message.room ?? "public")?.take(message);
  }

  /** @internal */
  onState(state: State): void {
    this.emit("state", state);
  }

  /** @internal */
  onUp(): void {
    for (const each of [...this.resumed]) each.up();
    this.outbox.schedule();
  }

  /** @internal */
  onDown(): void {
    this.outbox.disconnected();
    for (const each of [...this.resumed]) each.down();
  }

  /** @internal */
  onEnd(error: TidewireError | undefined): void {
    this.outbox.end(error ?? new Closed());
    for (const each of [...this.resumed]) each.ended(error);
  }

  /** Waits until all requests are answered, at most 5 s, and ends all iterations, workers and the connection. */
  close(): Promise<void> {
    return (this.closing ??= this.shut());
  }

  private async shut(): Promise<void> {
    const workers = Promise.all([...this.workers.values()].map((worker) => worker.stop()));
    await within(5_000, workers.then(() => this.outbox.empty()));
    this.connection.end();
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
  if (!found) throw new TypeError("there is no global WebSocket here: give the option WebSocket, such as the class of the package ws");
  return found as SocketClass;
}
