import type { Core } from "./core.js";
import { count } from "./duration.js";
import { Emitter } from "./emitter.js";
import { closed, errorOf, HistoryLost, must, TooOld, type TidewireError } from "./errors.js";
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
  constructor(private readonly core_: Core, readonly name: string) {}

  /** Joins. The promise is fulfilled when this client is a member. */
  async join(options: JoinOptions = {}): Promise<Room> {
    if (this.core_.rooms_.has(this.name)) throw new TypeError(`this client is in the room ${this.name}`);
    const room = new Room(this.core_, this.name, options);
    await room.entered_;
    return room;
  }
}

/** A membership in a room. It lasts until the program leaves, over all reconnects. */
export class Room extends Standing {
  /** The chats of the other members. */
  readonly messages: AsyncIterableIterator<Chat>;
  /** @internal */
  readonly entered_: Promise<void>;
  private readonly events_ = new Emitter<RoomEvents>();
  private readonly present_ = new Set<string>();
  private readonly inbox_ = new Inbox<Chat, Chat>(() => this.next_());
  // Positions of chats of this member: a history has these, too.
  private readonly own_ = new Set<number>();
  private seen_: number | undefined;
  private readonly chats_ = `chat ${this.name}`;
  private stored_ = false;
  private full_ = false;
  private readonly buffer_: number;

  /** @internal */
  constructor(core: Core, readonly name: string, private readonly options_: JoinOptions) {
    super(core, `join ${name}`, options_);
    this.events_.failed_ = core.failed_;
    this.seen_ = options_.after;
    this.buffer_ = count("buffer", options_.buffer ?? 1_000);
    this.messages = {
      next: () => this.inbox_.next_(),
      return: async () => {
        await this.leave();
        return { done: true, value: undefined };
      },
      [Symbol.asyncIterator]: () => this.messages,
    };
    core.rooms_.set(name, this);
    this.entered_ = this.begin_();
  }

  /** Calls `listener` at each event, until the function that it returns is called. */
  on<K extends keyof RoomEvents>(name: K, listener: (event: RoomEvents[K]) => unknown): () => void {
    return this.events_.on(name, listener);
  }

  /** Tells of an event in the next turn of the event loop: a program that has just joined has its listeners then. */
  private tell_<K extends keyof RoomEvents>(name: K, event: RoomEvents[K]): void {
    soon(() => this.events_.emit_(name, event));
  }

  /** Who is in the room, if it was joined with `presence`. */
  get members(): ReadonlySet<string> {
    return this.present_;
  }

  /** In a stored room, the position up to which the program has everything. */
  get position(): number | undefined {
    return this.seen_;
  }

  /** @internal */
  protected request_(): object {
    const { history, presence, user } = this.options_;
    const start = this.seen_ === undefined ? { history } : { after: this.seen_ };
    return { type: "join", room: this.name, presence, user, ...start };
  }

  /** @internal */
  protected bye_(): object {
    return { type: "leave", room: this.name };
  }

  /** @internal */
  protected answered_({ position }: Answer): void {
    this.core_.outbox_.openLane_(this.chats_);
    this.stored_ = position !== undefined;
    // With nothing to hand out, the program has everything up to here.
    if (this.stored_ && !this.inbox_.items_.length && !this.full_) this.seen_ = Math.max(this.seen_ ?? 0, position!);
  }

  /** @internal */
  override up_(): void {
    if (this.stored_) this.inbox_.items_ = [];
    else if (this.live_) this.tell_("gap", { missed: undefined });
    this.full_ = false;
    super.up_();
  }

  // A chat waits until the room is joined again: the server takes none before.

  /** @internal */
  override down_(): void {
    this.core_.outbox_.shutLane_(this.chats_);
    super.down_();
  }

  /** @internal */
  protected override again_(): void {
    this.core_.outbox_.shutLane_(this.chats_);
    super.again_();
  }

  /** @internal */
  protected override trouble_(error: TidewireError): void {
    this.core_.outbox_.shutLane_(this.chats_);
    super.trouble_(error);
  }

  /** @internal */
  protected recover_(error: TidewireError): boolean {
    if (!this.live_) return false;
    if (error instanceof TooOld) {
      this.tell_("gap", { missed: undefined });
      this.seen_ = error.oldest - 1;
    } else if (error instanceof HistoryLost) {
      this.tell_("history_lost", { last: error.last, upTo: this.seen_ ?? error.last });
      this.seen_ = error.last;
    } else {
      return false;
    }
    return true;
  }

  /** @internal */
  take_(message: any): void {
    switch (message.type) {
      case "chat":
        return this.chatted_(message);
      case "presence":
        return this.changed_(message);
      case "gap":
        return this.tell_("gap", { missed: message.missed });
      case "history_lost":
        return this.lost_(message.last, message.up_to);
      case "error":
        if (message.verb === "presence") return this.core_.failed_(errorOf(message));
        return this.trouble_(errorOf(message));
    }
  }

  private chatted_(chat: Chat): void {
    const { position } = chat;
    if (position !== undefined && this.own_.delete(position)) return;
    // A program that does not take its chats gets the rest later, from the store; or not, if there is none.
    if (this.full_ || this.inbox_.items_.length >= this.buffer_) {
      if (!this.full_ && !this.stored_) this.tell_("gap", { missed: undefined });
      this.full_ = true;
    } else {
      this.inbox_.push_(chat);
    }
  }

  private next_(): Chat | undefined {
    const chat = this.inbox_.items_.shift();
    if (chat) this.taken_(chat);
    return chat;
  }

  /** The program has a chat. */
  private taken_(chat: Chat): void {
    if (chat.position !== undefined) this.seen_ = chat.position;
    if (this.own_.size > 1_000) this.own_.clear();
    if (!this.full_ || this.inbox_.items_.length) return;
    const ready = () => (this.full_ = false);
    if (!this.stored_) return void ready();
    this.again_();
    // It goes out before. What comes until it is answered, comes again with the history.
    this.core_.outbox_.bound_(this.bye_(), { ahead_: true, read_: ready }).catch(ready);
  }

  private changed_({ members, joined = [], left = [], count }: { members?: string[]; joined?: string[]; left?: string[]; count: number }): void {
    if (members) {
      const now = new Set(members);
      joined = members.filter((member) => !this.present_.has(member));
      left = [...this.present_].filter((member) => !now.has(member));
    }
    for (const member of joined) this.present_.add(member);
    for (const member of left) this.present_.delete(member);
    this.tell_("presence", { members: this.present_, joined, left, count });
  }

  private lost_(last: number, upTo: number): void {
    if (this.seen_ !== undefined && this.seen_ > last && this.seen_ <= upTo) this.seen_ = last;
    this.tell_("history_lost", { last, upTo });
  }

  /**
   * Sends a chat to the other members. In a stored room it is stored once, and the promise has its position. The fields `room`, `type`, `id`,
   * `client` and `sequence` are those of this library: a chat that has them, such as one that came, is sent without them.
   */
  async chat(chat: string | ({ text: string } & Record<string, unknown>), options: CallOptions = {}): Promise<{ position?: number }> {
    if (this.over_) throw closed("the room was left");
    const outbox = this.core_.outbox_;
    const given = typeof chat === "string" ? { text: chat } : chat;
    const mine = { client: undefined, sequence: undefined, id: undefined, type: undefined, room: this.name };
    const body = JSON.stringify({ user: this.options_.user, ...given, ...mine }).slice(1);
    const read = (answer: Answer) => this.said_(this.stored_ ? must(answer, "position") : answer.position);
    return outbox.call_(options, {
      ...outbox.storing_("chat", this.name, () => body, read, this.stored_),
      ...(!this.stored_ && { mode_: "once", effect_: false }),
    });
  }

  private said_(position: number | undefined): { position?: number } {
    if (position === undefined) return {};
    if (position > (this.seen_ ?? 0)) this.own_.add(position);
    return { position };
  }

  /** Leaves the room. */
  async leave(): Promise<void> {
    if (this.over_) return;
    this.ended_();
    // A membership ends with its connection, too.
    await this.core_.outbox_.bound_(this.bye_(), {}, { timeout: 5_000 }).catch(() => {});
  }

  /** @internal */
  protected halt_(): void {
    void this.leave();
  }

  /** @internal */
  override ended_(error?: Error): void {
    this.inbox_.items_ = [];
    this.end_(error);
  }

  /** @internal */
  protected ending_(error: unknown): void {
    this.core_.rooms_.delete(this.name);
    this.core_.outbox_.openLane_(this.chats_);
    this.inbox_.end_(error);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.leave();
  }
}
