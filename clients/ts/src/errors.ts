/** What the server says about a failed request, as it is on the wire. */
export interface Problem {
  code: string;
  message: string;
  retryable?: boolean;
  retry_after_ms?: number;
  position?: number;
  event_type?: string;
  oldest?: number;
  last?: number;
  verb?: string;
  kind?: string;
  name?: string;
  field?: string;
  lost?: string[];
  failed?: string[];
}

/** The base of all errors of this library. A `code` that it does not know has this class. */
export class TidewireError extends Error {
  /** What is wrong, for programs. It does not change between versions. */
  readonly code: string;
  /** The same request can be sent again later, and has no effect twice. */
  readonly retryable: boolean;
  /** The `id` of the request on the wire, if there was one. */
  readonly requestId: number | undefined;
  /** How long the server wants you to wait before you try again, in milliseconds. */
  readonly retryAfter: number | undefined;
  /** The path of the field that is wrong, such as `messages[2].key`. */
  readonly field: string | undefined;

  constructor(problem: Problem, requestId?: number, options?: ErrorOptions) {
    super(problem.message, options);
    this.code = problem.code;
    this.retryable = problem.retryable ?? false;
    this.requestId = requestId;
    this.retryAfter = problem.retry_after_ms;
    this.field = problem.field;
  }

  override get name(): string {
    return "TidewireError";
  }
}

/** An event that the condition excludes is stored. Read it, and decide again. */
export class Conflict extends TidewireError {
  /** The first event that matches the condition. */
  readonly position: number;
  /** The type of that event. */
  readonly eventType: string;
  constructor(problem: Problem, id?: number) {
    super(problem, id);
    this.position = problem.position ?? 0;
    this.eventType = problem.event_type ?? "";
  }
  override get name(): string {
    return "Conflict";
  }
}

/** No rule grants this. */
export class Forbidden extends TidewireError {
  /** The right that is missing, such as `publish`. */
  readonly verb: string | undefined;
  /** The kind of object, such as `stream`. */
  readonly kind: string | undefined;
  /** The name of the object. */
  readonly object: string | undefined;
  constructor(problem: Problem, id?: number) {
    super(problem, id);
    this.verb = problem.verb;
    this.kind = problem.kind;
    this.object = problem.name;
  }
  override get name(): string {
    return "Forbidden";
  }
}

/** There is no stream, queue, group or event store of that name. */
export class NotFound extends TidewireError {
  override get name(): string {
    return "NotFound";
  }
}

/** The messages were dropped. Continue after `oldest` - 1. */
export class TooOld extends TidewireError {
  /** The first position that may still be kept. */
  readonly oldest: number;
  constructor(problem: Problem, id?: number) {
    super(problem, id);
    this.oldest = problem.oldest ?? 1;
  }
  override get name(): string {
    return "TooOld";
  }
}

/** A failover has lost the position. Discard what came after `last`, and continue after it. */
export class HistoryLost extends TidewireError {
  readonly last: number;
  constructor(problem: Problem, id?: number) {
    super(problem, id);
    this.last = problem.last ?? 0;
  }
  override get name(): string {
    return "HistoryLost";
  }
}

/** Another consumer has the message, or will get it. Undo nothing, and do not settle it again. */
export class LeaseLost extends TidewireError {
  constructor(problem: Partial<Problem> = {}, id?: number) {
    super({ code: "lease_lost", message: "the lease has ended: another consumer gets the message", ...problem }, id);
  }
  override get name(): string {
    return "LeaseLost";
  }
}

/** This client does not own the partition, or no longer. Discard its messages: its owner gets them. */
export class Fenced extends TidewireError {
  constructor(problem: Partial<Problem> = {}, id?: number) {
    super({ code: "fenced", message: "this client does not own the partition: discard its messages", ...problem }, id);
  }
  override get name(): string {
    return "Fenced";
  }
}

/** The request may have had its effect, or not. Check before you repeat it. */
export class OutcomeUnknown extends TidewireError {
  constructor(message: string, id?: number, options?: ErrorOptions) {
    super({ code: "outcome_unknown", message }, id, options);
  }
  override get name(): string {
    return "OutcomeUnknown";
  }
}

/** The time of the request is over. It had no effect. */
export class Timeout extends TidewireError {
  constructor(message: string, id?: number, options?: ErrorOptions) {
    super({ code: "timeout", message, retryable: true }, id, options);
  }
  override get name(): string {
    return "Timeout";
  }
}

/** The client was closed before the request was answered. */
export class Closed extends TidewireError {
  constructor(message = "the client is closed", id?: number) {
    super({ code: "closed", message }, id);
  }
  override get name(): string {
    return "Closed";
  }
}

/** The token or API key is not good any more: ask the user to sign in. Throw it in `token` to end the client. */
export class SignedOut extends TidewireError {
  constructor(message = "signed out: this token or API key must not be used again", options?: ErrorOptions) {
    super({ code: "signed_out", message }, undefined, options);
  }
  override get name(): string {
    return "SignedOut";
  }
}

/** The codec or schema refused a payload. `cause` says why. */
export class InvalidMessage extends TidewireError {
  /** The message as it came, with its position and its payload. */
  readonly received: Readonly<Record<string, unknown>>;
  constructor(received: object, cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super({ code: "invalid_message", message: `the payload is not valid: ${why}` }, undefined, { cause });
    this.received = received as Record<string, unknown>;
  }
  override get name(): string {
    return "InvalidMessage";
  }
}

const classes: Record<string, new (problem: Problem, id?: number) => TidewireError> = {
  conflict: Conflict,
  forbidden: Forbidden,
  not_found: NotFound,
  too_old: TooOld,
  history_lost: HistoryLost,
  lease_lost: LeaseLost,
  fenced: Fenced,
};

/** The error of an answer of the server. @internal */
export function errorOf(problem: Problem, id?: number): TidewireError {
  if (problem.code === "outcome_unknown" || problem.code === "sequence_too_old") {
    return new OutcomeUnknown(problem.message, id, { cause: new TidewireError(problem, id) });
  }
  return new (classes[problem.code] ?? TidewireError)(problem, id);
}

/** A payload, or a whole request, that the server would not take. @internal */
export function tooBig(bytes: number, limit: number, id?: number): TidewireError {
  return new TidewireError({ code: "too_big", message: `${bytes} bytes: the server takes ${limit}` }, id);
}
