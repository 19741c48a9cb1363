import type { Outbox } from "./outbox.js";
import type { Problem } from "./errors.js";

/** What begins again on each new connection. @internal */
export interface Resumed {
  /** There is a new connection. */
  up(): void;
  /** The connection has ended. */
  down(): void;
  /** The client is closed: with an error, or by the program. */
  ended(error?: Error): void;
}

/** What gets the messages of the server for a subscription. @internal */
export interface FeedTarget extends Resumed {
  take(message: any): void;
}

/** The inside of a client, for streams, queues, rooms and events. @internal */
export interface Core {
  readonly outbox: Outbox;
  readonly feeds: Map<string, FeedTarget>;
  readonly workers: Map<string, Resumed & { delivery(message: any): void; problem(problem: Problem): void; stop(): Promise<void> }>;
  readonly rooms: Map<string, Resumed & { take(message: any): void }>;
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
