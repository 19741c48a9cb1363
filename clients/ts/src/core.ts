import type { Outbox } from "./outbox.js";

/** What begins again on each new connection. */
export interface Resumed {
  /** There is a new connection. */
  up_(): void;
  /** The connection has ended. */
  down_(): void;
  /** The client is closed: with an error, or by the program. */
  ended_(error?: Error): void;
}

/** What gets messages of the server. */
export interface FeedTarget extends Resumed {
  take_(message: any): void;
}

/** The inside of a client, for streams, queues, rooms and events. */
export interface Core {
  readonly outbox_: Outbox;
  readonly feeds_: Map<string, FeedTarget>;
  readonly workers_: Map<string, FeedTarget & { stop(): Promise<void> }>;
  readonly rooms_: Map<string, FeedTarget>;
  readonly resumed_: Set<Resumed>;
  /** Whether there is a connection. */
  readonly up_: boolean;
  /** Sends a message that wants no answer, if there is a connection. */
  send_(message: object): void;
  /** A name that no other subscription has. */
  name_(): string;
  /** Tells the program of an error that no call of it can have. */
  failed_(error: unknown): void;
}
