import type { Core, Resumed } from "./core.js";
import { jitter } from "./duration.js";
import { Emitter } from "./emitter.js";
import { Closed, errorOf, HistoryLost, OutcomeUnknown, TidewireError, TooOld } from "./errors.js";
import { Inbox } from "./inbox.js";
import type { Answer, CallOptions } from "./request.js";

/** A chat, with whatever fields its sender has given it. */
export interface Chat {
  room?: string;
  user?: string;
  text: string;
  /** Where it is, in a stored room. */
  position?: number;
  /** When the server took it, in a stored room. */
  time?: string;
  [field: string]: unknown;
}

export interface JoinOptions extends CallOptions {
  /** Begin with the last chats of a stored room: up to 1,000. */
  history?: number;
  /** Begin after this position of a stored room. */
  after?: number;
  /** Keep the set of `members`. */
  presence?: boolean;
  /** Who joins, on a server without tokens. */
  user?: string;
  /** How many chats may wait in this library until the program takes them: 1,000 unless given. */
  buffer?: number;
}

export interface RoomEvents {
  /** Who is in the room now, and what has changed. `count` has the connections. */
  presence: { members: ReadonlySet<string>; joined: string[]; left: string[]; count: number };
  /** Chats were missed: how many, if that is known. */
  gap: { missed: number | undefined };
  /** A failover has lost chats of a stored room: discard those after `last`, up to `upTo`. */
  history_lost: { last: number; upTo: number };
}

/** A room that can be joined. */
export class RoomEntry {
  /** @internal */
  constructor(private readonly core: Core, readonly name: string) {}

  /** Joins. The promise is fulfilled when this client is a member. */
  async join(options: JoinOptions = {}): Promise<Room> {
    if (this.core.rooms.has(this.name)) throw new TypeError(`this client is in the room ${JSON.stringify(this.name)}`);
    const room = new Room(this.core, this.name, options);
    await room.entered;
    return room;
  }
}

/** A membership in a room. It lasts until the program leaves, over all reconnects. */
export class Room extends Emitter<RoomEvents> implements Resumed {
  /** The chats of the other members. */
  readonly messages: AsyncIterableIterator<Chat>;
  /** @internal */
  readonly entered: Promise<void>;
  private readonly present = new Set<string>();
  private readonly inbox: Inbox<Chat>;
  // Positions of chats of this member: a history has these, too.
  private readonly own = new Set<number>();
  private seen: number | undefined;
  private stored = false;
  private joined = false;
  private over = false;
  private full = false;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** @internal */
  constructor(private readonly core: Core, readonly name: string, private readonly options: JoinOptions) {
    super();
    this.failed = core.failed;
    this.seen = options.after;
    this.inbox = new Inbox<Chat>(
      (chat) => this.taken(chat),
      () => void this.leave(),
    );
    this.messages = this.inbox;
    core.rooms.set(name, this);
    core.resumed.add(this);
    this.entered = this.enter();
  }

  /** Who is in the room, if it was joined with `presence`. */
  get members(): ReadonlySet<string> {
    return this.present;
  }

  /** In a stored room, the position up to which the program has everything. */
  get position(): number | undefined {
    return this.seen;
  }

  private request(): object {
    const { history, presence, user } = this.options;
    const start = this.seen === undefined ? { history } : { after: this.seen };
    return { type: "join", room: this.name, presence, user, ...start };
  }

  private async enter(): Promise<void> {
    try {
      const { timeout, signal } = this.options;
      this.entry(await this.core.outbox.ask({ timeout: timeout!, signal: signal! }, `join ${this.name}`, this.request()));
    } catch (error) {
      this.end();
      throw error;
    }
  }

  private entry({ position }: Answer): void {
    this.joined = true;
    this.failures = 0;
    this.stored = position !== undefined;
    // With nothing to hand out, the program has everything up to here.
    if (this.stored && !this.inbox.length && !this.full) this.seen = Math.max(this.seen ?? 0, position!);
  }

  /** @internal */
  up(): void {
    if (!this.joined) return;
    if (this.stored) this.inbox.discard();
    else this.emit("gap", { missed: undefined });
    this.full = false;
    this.again();
  }

  private again(): void {
    if (this.over || !this.core.up) return;
    const lost = () => new TidewireError({ code: "connection_lost", message: "the connection has ended", retryable: true });
    this.core.outbox
      .call<Answer>({ timeout: 0 }, { lane: "", mode: "bound", write: ({ id }) => JSON.stringify({ id, ...this.request() }), read: (answer) => answer, lost })
      .then(
        (answer) => this.entry(answer),
        (error: TidewireError) => {
          if (this.core.up) this.trouble(error);
        },
      );
  }

  /** The room could not be joined again. */
  private trouble(error: TidewireError): void {
    if (this.over) return;
    if (error instanceof TooOld) {
      this.emit("gap", { missed: undefined });
      this.seen = error.oldest - 1;
      this.again();
    } else if (error instanceof HistoryLost) {
      this.emit("history_lost", { last: error.last, upTo: this.seen ?? error.last });
      this.seen = error.last;
      this.again();
    } else if (error.retryable) {
      this.timer = setTimeout(() => this.again(), error.retryAfter ?? jitter(this.failures++));
    } else {
      this.end(error);
    }
  }

  /** @internal */
  down(): void {
    clearTimeout(this.timer);
  }

  /** @internal */
  ended(error?: Error): void {
    this.inbox.discard();
    this.end(error);
  }

  /** @internal */
  take(message: any): void {
    switch (message.type) {
      case "chat":
        return this.chatted(message);
      case "presence":
        return this.changed(message);
      case "gap":
        return void this.emit("gap", { missed: message.missed });
      case "history_lost":
        return this.lost(message.last, message.up_to);
      case "error":
        if (message.verb === "presence") return this.core.failed(errorOf(message));
        return this.end(errorOf(message));
    }
  }

  private chatted(chat: Chat): void {
    const { position } = chat;
    if (position !== undefined && this.own.delete(position)) return;
    // A program that does not take its chats gets the rest later, from the store; or not, if there is none.
    if (this.full || this.inbox.length >= (this.options.buffer ?? 1_000)) {
      if (!this.full && !this.stored) this.emit("gap", { missed: undefined });
      this.full = true;
    } else {
      this.inbox.push(chat);
    }
  }

  /** The program has a chat. */
  private taken(chat: Chat): void {
    if (chat.position !== undefined) this.seen = chat.position;
    if (!this.full || this.inbox.length) return;
    this.full = false;
    if (!this.stored || !this.core.up) return;
    this.core.send({ type: "leave", room: this.name });
    this.again();
  }

  private changed({ members, joined = [], left = [], count }: { members?: string[]; joined?: string[]; left?: string[]; count: number }): void {
    if (members) {
      const now = new Set(members);
      joined = members.filter((member) => !this.present.has(member));
      left = [...this.present].filter((member) => !now.has(member));
    }
    for (const member of joined) this.present.add(member);
    for (const member of left) this.present.delete(member);
    this.emit("presence", { members: this.present, joined, left, count });
  }

  private lost(last: number, upTo: number): void {
    if (this.seen !== undefined && this.seen > last && this.seen <= upTo) this.seen = last;
    this.emit("history_lost", { last, upTo });
  }

  /** Sends a chat to the other members. In a stored room it is stored once, and the promise has its position. */
  async chat(chat: string | ({ text: string } & Record<string, unknown>), options: CallOptions = {}): Promise<{ position?: number }> {
    if (this.over) throw new Closed("the room was left");
    const { outbox } = this.core;
    const fields = { room: this.name, user: this.options.user, ...(typeof chat === "string" ? { text: chat } : chat) };
    const body = JSON.stringify(fields).slice(1);
    return outbox.call(options, {
      lane: `chat ${this.name}`,
      mode: this.stored ? "repeat" : "once",
      effect: this.stored,
      write: ({ id }) => `{"type":"chat","id":${id},${this.stored ? `${outbox.identity()},` : ""}${body}`,
      read: ({ position }: Answer) => this.said(position),
    });
  }

  private said(position: number | undefined): { position?: number } {
    if (position === undefined) return {};
    if (position > (this.seen ?? 0)) this.own.add(position);
    for (const at of this.own) if (at <= (this.seen ?? 0)) this.own.delete(at);
    return { position };
  }

  /** Leaves the room. */
  async leave(): Promise<void> {
    if (this.over) return;
    this.inbox.discard();
    this.end();
    if (this.core.up) await this.core.outbox.call({ timeout: 5_000 }, leaving(this.name)).catch(ignoreLost);
  }

  private end(error?: Error): void {
    if (this.over) return;
    this.over = true;
    clearTimeout(this.timer);
    this.core.rooms.delete(this.name);
    this.core.resumed.delete(this);
    this.inbox.end(error);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.leave();
  }
}

const leaving = (room: string) => ({
  lane: "",
  mode: "bound" as const,
  write: ({ id }: { id: number }) => JSON.stringify({ type: "leave", id, room }),
  read: () => undefined,
  lost: () => new OutcomeUnknown("the connection has ended"),
});

/** A membership ends with its connection, too. */
function ignoreLost(error: unknown): void {
  if (!(error instanceof TidewireError)) throw error;
}
