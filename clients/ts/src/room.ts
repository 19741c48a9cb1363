import type { Core } from "./core.js";
import { Emitter } from "./emitter.js";
import { Closed, errorOf, HistoryLost, TooOld, type TidewireError } from "./errors.js";
import { Inbox } from "./inbox.js";
import type { Answer, CallOptions } from "./request.js";
import { Standing } from "./standing.js";
import { soon } from "./tick.js";

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
export class Room extends Standing {
  /** The chats of the other members. */
  readonly messages: AsyncIterableIterator<Chat>;
  /** @internal */
  readonly entered: Promise<void>;
  private readonly events = new Emitter<RoomEvents>();
  private readonly present = new Set<string>();
  private readonly inbox = new Inbox<Chat, Chat>(() => this.next());
  // Positions of chats of this member: a history has these, too.
  private readonly own = new Set<number>();
  private seen: number | undefined;
  private stored = false;
  private full = false;

  /** @internal */
  constructor(core: Core, readonly name: string, private readonly options: JoinOptions) {
    super(core, `join ${name}`, options);
    this.events.failed = core.failed;
    this.seen = options.after;
    this.messages = {
      next: () => this.inbox.next(),
      return: async () => {
        await this.leave();
        return { done: true, value: undefined };
      },
      [Symbol.asyncIterator]: () => this.messages,
    };
    core.rooms.set(name, this);
    this.entered = this.begin();
  }

  /** Calls `listener` at each event, until the function that it returns is called. */
  on<K extends keyof RoomEvents>(name: K, listener: (event: RoomEvents[K]) => unknown): () => void {
    return this.events.on(name, listener);
  }

  /** Tells of an event in the next turn of the event loop: a program that has just joined has its listeners then. */
  private tell<K extends keyof RoomEvents>(name: K, event: RoomEvents[K]): void {
    soon(() => this.events.emit(name, event));
  }

  /** Who is in the room, if it was joined with `presence`. */
  get members(): ReadonlySet<string> {
    return this.present;
  }

  /** In a stored room, the position up to which the program has everything. */
  get position(): number | undefined {
    return this.seen;
  }

  /** @internal */
  protected request(): object {
    const { history, presence, user } = this.options;
    const start = this.seen === undefined ? { history } : { after: this.seen };
    return { type: "join", room: this.name, presence, user, ...start };
  }

  /** @internal */
  protected answered({ position }: Answer): void {
    this.stored = position !== undefined;
    // With nothing to hand out, the program has everything up to here.
    if (this.stored && !this.inbox.items.length && !this.full) this.seen = Math.max(this.seen ?? 0, position!);
  }

  /** @internal */
  override up(): void {
    if (this.stored) this.inbox.items = [];
    else if (this.live) this.tell("gap", { missed: undefined });
    this.full = false;
    super.up();
  }

  /** @internal */
  protected recover(error: TidewireError): boolean {
    if (!this.live) return false;
    if (error instanceof TooOld) {
      this.tell("gap", { missed: undefined });
      this.seen = error.oldest - 1;
    } else if (error instanceof HistoryLost) {
      this.tell("history_lost", { last: error.last, upTo: this.seen ?? error.last });
      this.seen = error.last;
    } else {
      return false;
    }
    return true;
  }

  /** @internal */
  take(message: any): void {
    switch (message.type) {
      case "chat":
        return this.chatted(message);
      case "presence":
        return this.changed(message);
      case "gap":
        return this.tell("gap", { missed: message.missed });
      case "history_lost":
        return this.lost(message.last, message.up_to);
      case "error":
        if (message.verb === "presence") return this.core.failed(errorOf(message));
        return this.trouble(errorOf(message));
    }
  }

  private chatted(chat: Chat): void {
    const { position } = chat;
    if (position !== undefined && this.own.delete(position)) return;
    // A program that does not take its chats gets the rest later, from the store; or not, if there is none.
    if (this.full || this.inbox.items.length >= (this.options.buffer ?? 1_000)) {
      if (!this.full && !this.stored) this.tell("gap", { missed: undefined });
      this.full = true;
    } else {
      this.inbox.push(chat);
    }
  }

  private next(): Chat | undefined {
    const chat = this.inbox.items.shift();
    if (chat) this.taken(chat);
    return chat;
  }

  /** The program has a chat. */
  private taken(chat: Chat): void {
    if (chat.position !== undefined) this.seen = chat.position;
    if (this.own.size > 1_000) this.own.clear();
    if (!this.full || this.inbox.items.length) return;
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
    this.tell("presence", { members: this.present, joined, left, count });
  }

  private lost(last: number, upTo: number): void {
    if (this.seen !== undefined && this.seen > last && this.seen <= upTo) this.seen = last;
    this.tell("history_lost", { last, upTo });
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
      write: ({ id }) => `{"type":"chat","id":${id},${this.stored ? outbox.identity() : ""}${body}`,
      read: ({ position }: Answer) => this.said(position),
    });
  }

  private said(position: number | undefined): { position?: number } {
    if (position === undefined) return {};
    if (position > (this.seen ?? 0)) this.own.add(position);
    return { position };
  }

  /** Leaves the room. */
  async leave(): Promise<void> {
    if (this.over) return;
    this.inbox.items = [];
    this.end();
    // A membership ends with its connection, too.
    if (this.core.up) await this.core.outbox.bound({ type: "leave", room: this.name }, {}, { timeout: 5_000 }).catch(() => {});
  }

  /** @internal */
  protected halt(): void {
    void this.leave();
  }

  /** @internal */
  override ended(error?: Error): void {
    this.inbox.items = [];
    this.end(error);
  }

  /** @internal */
  protected ending(error: unknown): void {
    this.core.rooms.delete(this.name);
    this.inbox.end(error);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.leave();
  }
}
