/** What the server says about a failed request, as it is on the wire. */
export interface Problem {
  code: string;
  message: string;
  retryable?: boolean;
  retry_after_ms?: number;
  position?: number | undefined;
  size?: number;
  partition?: number;
  event_type?: string;
  oldest?: number;
  last?: number;
  verb?: string;
  kind?: string;
  name?: string;
  field?: string;
  received?: object;
  lost?: string[];
  failed?: string[];
}

/** The base of all errors of this library. A `code` that it does not know has this class. */
export class TidewireError extends Error {
  /** What is wrong, for programs. It does not change between versions. */
  declare readonly code: string;
  /** The same request can be sent again later, and has no effect twice. */
  declare readonly retryable: boolean;
  /** The `id` of the request on the wire, if there was one. */
  declare readonly requestId: number | undefined;
  /** How long the server wants you to wait before you try again, in milliseconds. */
  declare readonly retryAfter: number | undefined;
  /** The path of the field that is wrong, such as `messages[2].key`. */
  declare readonly field: string | undefined;

  constructor(problem: Problem, requestId?: number, options?: ErrorOptions) {
    super(problem.message, options);
    const { type, id, message, name: object, event_type: eventType, retry_after_ms: retryAfter, ...fields } = problem as Problem & { type?: string; id?: number };
    // The name is that of the class, which a minifier changes: too_old is TooOld.
    const name = fields.code.replace(/(?:^|_)(.)/g, (_, letter: string) => letter.toUpperCase());
    Object.defineProperty(this, "name", { value: name, configurable: true });
    Object.assign(this, { retryable: false, requestId }, fields, object && { object }, eventType && { eventType }, retryAfter && { retryAfter });
  }
}

/** An event that the condition excludes is stored. Read it, and decide again. */
export class Conflict extends TidewireError {
  /** The first event that matches the condition. */
  declare readonly position: number;
  /** The type of that event. */
  declare readonly eventType: string;
}

/** No rule grants this. */
export class Forbidden extends TidewireError {
  /** The right that is missing, such as `publish`. */
  declare readonly verb: string | undefined;
  /** The kind of object, such as `stream`. */
  declare readonly kind: string | undefined;
  /** The name of the object. */
  declare readonly object: string | undefined;
}

/** There is no stream, queue, group or event store of that name. */
export class NotFound extends TidewireError {}

/** A message is larger than the server takes. */
export class TooBig extends TidewireError {}

/** The messages were dropped. Continue after `oldest` - 1. */
export class TooOld extends TidewireError {
  /** The first position that may still be kept. */
  declare readonly oldest: number;
  /** With `share`: commit `oldest` - 1 of this partition, and iterate again. */
  declare readonly partition: number | undefined;
}

/** The server does not read a message, which another program has stored. Continue after `position`. */
export class MessageTooLarge extends TidewireError {
  /** The message. */
  declare readonly position: number;
  /** The bytes of its payload. */
  declare readonly size: number;
  /** With `share`: commit `position` of this partition, and iterate again. */
  declare readonly partition: number | undefined;
}

/** A failover has lost the position. Discard what came after `last`, and continue after it. */
export class HistoryLost extends TidewireError {
  declare readonly last: number;
}

/** Another consumer has the message, or will get it. Undo nothing, and do not settle it again. */
export class LeaseLost extends TidewireError {}

/** This client does not own the partition, or no longer. Discard its messages: its owner gets them. */
export class Fenced extends TidewireError {}

/** The request may have had its effect, or not. Check before you repeat it. */
export class OutcomeUnknown extends TidewireError {}

/** The time of the request is over. It had no effect. */
export class Timeout extends TidewireError {}

/** The client was closed before the request was answered. */
export class Closed extends TidewireError {}

/** The token or API key is not good any more: ask the user to sign in. Throw it in `token` to end the client. */
export class SignedOut extends TidewireError {
  constructor(message = "do not use this token or API key again: sign in", options?: ErrorOptions) {
    super({ code: "signed_out", message }, undefined, options);
  }
}

/** The codec or schema refused a payload. `cause` says why. */
export class InvalidMessage extends TidewireError {
  /** The message as it came, with its position and its payload. */
  declare readonly received: Readonly<Record<string, unknown>>;
}

const classes: Record<string, typeof TidewireError> = {
  conflict: Conflict,
  forbidden: Forbidden,
  not_found: NotFound,
  too_big: TooBig,
  too_old: TooOld,
  message_too_large: MessageTooLarge,
  history_lost: HistoryLost,
  lease_lost: LeaseLost,
  fenced: Fenced,
  outcome_unknown: OutcomeUnknown,
  timeout: Timeout,
  closed: Closed,
  invalid_message: InvalidMessage,
};

/** The error of an answer of the server, or of a problem that this library has found. */
export function errorOf(problem: Problem, id?: number, cause?: unknown): TidewireError {
  return new (classes[problem.code] ?? TidewireError)(problem, id, cause === undefined ? cause : { cause });
}

/** The program, or the end of the client, has ended this. */
export const closed = (message = "the client is closed"): TidewireError => errorOf({ code: "closed", message });

/** Nobody knows whether a request had its effect. */
export const outcomeUnknown = (message: string, id: number, cause?: unknown): TidewireError => errorOf({ code: "outcome_unknown", message }, id, cause);

/** The time of a request, or of an attempt to connect, is over. */
export const timedOut = (message: string, id?: number, cause?: unknown): TidewireError =>
  errorOf({ code: "timeout", message, retryable: true }, id, cause);

/** What belongs to one connection ends with it. */
export const connectionLost = (message = "the connection has ended", cause?: unknown): TidewireError =>
  errorOf({ code: "connection_lost", message, retryable: true }, undefined, cause);

/** Another client owns the partition. */
export const fenced = (): TidewireError => errorOf({ code: "fenced", message: "another client owns the partition: discard its messages" });

/** A field that a message of the server has to have: a whole number, unless `good` says what it is. */
export function must<T = number>(message: any, name: string, good: (value: any) => boolean = Number.isSafeInteger): T {
  const value = message[name];
  if (!good(value)) throw new TypeError(`${name} is ${JSON.stringify(value)}`);
  return value;
}
