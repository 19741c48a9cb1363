import type { Core } from "./core.js";
import { count, jitter, sleep } from "./duration.js";
import { Conflict, must } from "./errors.js";
import { Feed } from "./feed.js";
import { matches, union, type Query } from "./query.js";
import type { Answer, CallOptions } from "./request.js";

/** An event to append. */
export interface NewEvent<D = unknown> {
  type: string;
  tags?: string[];
  /** An event with the same id is stored once. */
  id?: string;
  data?: D;
}

/** An event that is stored. */
export interface StoredEvent<D = any> {
  position: number;
  /** When it was stored: RFC 3339. */
  time: string;
  type: string;
  tags: string[];
  id?: string;
  data?: D;
  /** Data that was given as bytes. */
  data_base64?: string;
}

/** Nothing is appended if an event after the position matches the query. */
export interface Condition {
  query: Query;
  after?: number;
}

export interface Appended {
  /** Where the events are, in their order. */
  positions: number[];
  /** They were stored before: this was a repetition, be it one that the library itself has sent after a reconnect. */
  duplicate: boolean;
}

export interface AppendOptions extends CallOptions {
  condition?: Condition;
}

export interface QueryOptions extends CallOptions {
  after?: number;
  before?: number;
  /** The newest first. */
  backwards?: boolean;
  /** How many events a page has: up to 1,000. */
  page?: number;
}

export interface FollowOptions extends CallOptions {
  /** After this position. At the first event unless given. */
  after?: number;
  credits?: number;
  /** What to do about events that were dropped: go on without them. */
  onGap?: "skip";
}

/** A value that is made of the events which match a query. */
export interface Projection<S> {
  query: Query;
  init: S;
  apply(state: S, event: StoredEvent): S;
}

/** Projections by name, of values of these types. */
export type Projections<S> = { readonly [K in keyof S]: Projection<S[K]> };

export interface DecideOptions extends CallOptions {
  /** How often to decide, if events come in between: 5 unless given. */
  attempts?: number;
}

export interface Decided extends Appended {
  /** How often the program has decided. */
  tries: number;
}

/** An event store. */
export class Events {
  /** @internal */
  constructor(private readonly core_: Core, readonly store: string | undefined) {}

  /** Appends events, all or none; with a condition, if that holds at their positions. */
  append(events: NewEvent | readonly NewEvent[], options: AppendOptions = {}): Promise<Appended> {
    const fields = JSON.stringify({ store: this.store, events: [events].flat(), condition: wire(options.condition) });
    const outbox = this.core_.outbox_;
    const read = (answer: Answer) => ({ positions: must(answer, "positions", Array.isArray), duplicate: !!answer.duplicate });
    return outbox.call_(options, outbox.storing_("append", this.store ?? "", () => fields.slice(1), read));
  }

  /** Iterates over the events that match, page after page. */
  async *query(query: Query, options: QueryOptions = {}): AsyncGenerator<StoredEvent, void, undefined> {
    for await (const events of this.pages_(query, options)) yield* events;
  }

  private async *pages_(query: Query, options: QueryOptions): AsyncGenerator<StoredEvent[]> {
    let { after, before } = options;
    const { backwards, page } = options;
    for (;;) {
      const fields = { type: "query", store: this.store, query: items(query), after, before, backwards, limit: page ?? 1_000 };
      const { events, next } = await this.core_.outbox_.ask_<Found>(options, "query", fields, found);
      yield events;
      if (!events.length) return;
      if (backwards) before = next;
      else after = next;
    }
  }

  /** Counts the events that match each query. The counts are right as long as the condition holds. */
  project(queries: readonly Query[], options: CallOptions = {}): Promise<{ counts: number[]; condition: Condition }> {
    const fields = { type: "project", store: this.store, queries: queries.map(items) };
    return this.core_.outbox_.ask_(options, "project", fields, (answer) => ({
      counts: must(answer, "counts", Array.isArray),
      condition: must(answer, "condition", isObject),
    }));
  }

  /** Iterates over the events that match, those that are stored and then those to come. */
  subscribe(query: Query, options: FollowOptions = {}): EventSubscription {
    return new EventSubscription(this.core_, this.store, query, options);
  }

  /**
   * Folds the events that match the projections, calls `decide` with the result, and appends what it returns, if no event has come
   * meanwhile that matches one of them. Otherwise it begins again.
   */
  async decide<S extends object>(
    projections: Projections<S>,
    decide: (states: S) => NewEvent | readonly NewEvent[] | undefined | Promise<NewEvent | readonly NewEvent[] | undefined>,
    options: DecideOptions = {},
  ): Promise<Decided> {
    const attempts = count("attempts", options.attempts ?? 5);
    const query = union(Object.values<Projection<any>>(projections).map((projection) => projection.query));
    for (let tries = 1; ; tries++) {
      const { states, after } = await this.fold_(projections, query, options);
      const events = [(await decide(states)) ?? []].flat() as NewEvent[];
      if (!events.length) return { positions: [], duplicate: false, tries };
      try {
        return { ...(await this.append(events, { ...options, condition: { query, after } })), tries };
      } catch (error) {
        if (!(error instanceof Conflict) || tries >= attempts) throw error;
      }
      await sleep(jitter(tries, 10));
    }
  }

  private async fold_<S>(projections: Projections<S>, query: Query, options: CallOptions): Promise<{ states: S; after: number }> {
    const { timeout, signal } = options;
    const states: Record<string, unknown> = {};
    const named = Object.entries<Projection<any>>(projections);
    for (const [name, { init }] of named) states[name] = init;
    let after = 0;
    for await (const events of this.pages_(query, { timeout: timeout!, signal: signal! })) {
      for (const event of events) {
        for (const [name, projection] of named) {
          if (matches(projection.query, event)) states[name] = projection.apply(states[name], event);
        }
        after = event.position;
      }
    }
    return { states: states as S, after };
  }
}

/** The events that match a query, and then those to come. */
export class EventSubscription extends Feed<StoredEvent, StoredEvent> {
  /** @internal */
  constructor(core: Core, private readonly store_: string | undefined, private readonly query_: Query, private readonly o_: FollowOptions) {
    super(core, o_);
    this.open_();
  }

  /** @internal */
  protected fields_(): object {
    return { store: this.store_, query: items(this.query_) };
  }

  /** @internal */
  protected start_(): object {
    return { after: this.o_.after };
  }

  /** @internal */
  protected make_(event: StoredEvent): StoredEvent {
    return event;
  }
}

interface Found {
  events: StoredEvent[];
  next: number;
}

/** A page of events, as the server has answered. */
const found = (answer: Answer): Found => ({ events: must(answer, "events", Array.isArray), next: must(answer, "next") });

const isObject = (value: unknown) => typeof value === "object" && value !== null;

/** A query as it is on the wire, whatever else the object of the program has. */
const items = (query: Query): Query => ({ items: query.items });

const wire = (condition: Condition | undefined) => condition && { query: items(condition.query), after: condition.after };
