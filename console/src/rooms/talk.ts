// One membership of this page in a room, and what it has heard.
import { signal } from "@preact/signals";
import type { Room } from "tidewire";
import { full } from "../format/numbers.js";
import { client } from "../session.js";
import type { Said } from "./data.js";

/** A line of the conversation: a chat, or a note of the console without a user. */
export interface Line extends Said {
  id: number;
  kind: "chat" | "mine" | "note";
}

/** How many lines are kept. */
const most = 500;
/** How long lines gather until they are shown, in milliseconds. */
const gather = 100;

export class Talk {
  readonly lines = signal<Line[]>([]);
  readonly state = signal<"out" | "joining" | "in">("out");
  /** Why the user is not in the room any more. */
  readonly error = signal<unknown>(undefined);
  /** Who is in the room, while the membership tells it. */
  readonly present = signal<{ members: string[]; count: number } | undefined>(undefined);
  private room: Room | undefined;
  private next = 0;
  private gathered: Line[] = [];
  private timer = 0;
  private over = false;

  constructor(private readonly name: string) {}

  /** Joins, and takes what comes until the membership ends. */
  async join(user: string, { presence, history }: { presence: boolean; history: boolean }): Promise<void> {
    this.state.value = "joining";
    this.error.value = undefined;
    try {
      const room = await client().room(this.name).join({ presence, ...(user && { user }), ...(history && { history: 20 }) });
      if (this.over) return void room.leave();
      this.room = room;
      this.state.value = "in";
      this.note("You have joined.");
      room.on("gap", ({ missed }) => this.note(missed === undefined ? "Chats may be missing here: the connection was lost, or this page was too slow." : `${full(missed)} chats are missing here.`));
      room.on("history_lost", ({ last }) => this.note(`A failover has lost the chats after position ${full(last)}.`));
      let known = false;
      room.on("presence", ({ members, joined, left, count }) => {
        this.present.value = { members: [...members].sort(), count };
        if (known) this.changed(joined, left);
        known = true;
      });
      for await (const chat of room.messages) this.add("chat", chat);
    } catch (why) {
      this.error.value = why;
    }
    this.room = undefined;
    this.present.value = undefined;
    if (this.state.value === "in") this.note("You are not in the room any more.");
    this.state.value = "out";
  }

  private changed(joined: string[], left: string[]): void {
    for (const [names, has, have] of [[joined, "has joined", "have joined"], [left, "has left", "have left"]] as const) {
      if (names.length > 3) this.note(`${full(names.length)} users ${have}.`);
      else for (const name of names) this.note(`${name} ${has}.`);
    }
  }

  /** Says something. The others get it; so the line of the user itself is added here. */
  async say(text: string, user: string): Promise<void> {
    await this.room!.chat(text);
    this.add("mine", { text, user: user || "you" });
  }

  leave(): void {
    void this.room?.leave();
  }

  /** Leaves for ever: the page shows something else. */
  end(): void {
    this.over = true;
    clearTimeout(this.timer);
    this.leave();
  }

  private note = (text: string) => this.add("note", { text });

  private add(kind: Line["kind"], { user, text, time = new Date().toISOString(), position }: Said): void {
    this.gathered.push({ id: this.next++, kind, text, time, ...(user && { user }), ...(position !== undefined && { position }) });
    if (this.gathered.length > 2 * most) this.gathered.splice(0, most);
    this.timer ||= window.setTimeout(() => {
      this.timer = 0;
      this.lines.value = [...this.lines.value, ...this.gathered].slice(-most);
      this.gathered = [];
    }, gather);
  }
}
