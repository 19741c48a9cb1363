import type { Outbox } from "./outbox.js";

/** What begins again on each new connection. */
export interface Resumed {
  /** There is a new connection. */
  up(): void;
  /** The connection has ended. */
  down(): void;
  /** The client is closed: with an error, or by the program. */
  ended(error?: Error): void;
}

/** What gets messages of the server. */
export interface FeedTarget extends Resumed {
  take(message: any): void;
}

/** The inside of a client, for streams, queues, rooms and events. */
export interface Core {
  readonly outbox: Outbox;
  readonly feeds: Map<string, FeedTarget>;
  readonly workers: Map<string, FeedTarget & { stop(): Promise<void> }>;
  readonly rooms: Map<string, FeedTarget>;
  readonly resumed: Set<Resumed>;
  /** Whether there is a connection. */
  readonly up: boolean;
  /** Sends a message that wants no answer, if there is a connection. */
  send(message: object): void;
  /** A name that no other subscription has. */
  name(): string;
  /** Tells the program of an error that no call of it can have. */
  failed(error: unknown): void;
}
