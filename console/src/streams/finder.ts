// Searches a stream, the newest messages first. Each request reads a bounded part of it.
import { signal } from "@preact/signals";
import { part, text, type Failure } from "../api.js";
import { shown, type Shown } from "./messages.js";

/** What is looked for, as the address has it. */
export const wants = ["text", "case", "path", "value", "key", "from", "to"] as const;
export type Want = Partial<Record<(typeof wants)[number], string>>;

export interface Part {
  messages: Shown[];
  next: number;
  done: boolean;
}

/** How many positions are searched before the ones below them: few at first, in case most match. After how many messages it pauses. */
const [least, most] = [500, 10_000];
const enough = 200;

/** Asks for one part of a range. */
export async function searchPart(stream: string, want: Want, after: number, until: number, signal: AbortSignal): Promise<Part> {
  const query = new URLSearchParams({ after: String(after), until: String(until), limit: "1000" });
  for (const name of ["text", "path", "value", "key"] as const) if (want[name]) query.set(name, want[name]!);
  if (want.text && !want.case) query.set("any_case", "true");
  const answer = await text(`streams/${part(stream)}/search?${query}`, { signal });
  const { next, done } = JSON.parse(answer);
  return { messages: shown(answer), next, done };
}

export type FinderState = "running" | "paused" | "stopped" | "done" | "failed";

/** A search from the newest position of a range to its oldest. */
export class Finder {
  readonly messages = signal<Shown[]>([]);
  readonly state = signal<FinderState>("running");
  readonly read = signal(0);
  readonly error = signal<unknown>(undefined);
  private end: number;
  private low: number;
  private step = least;
  private readonly first: number;
  private abort = new AbortController();

  constructor(private readonly stream: string, private readonly want: Want, from: number, readonly to: number, private readonly ask = searchPart) {
    this.low = Math.max(from - 1, 0);
    this.end = to;
    this.first = this.low;
  }

  /** How many positions there are. */
  get all(): number {
    return Math.max(this.to - this.first, 0);
  }

  stop(): void {
    this.abort.abort();
    if (this.state.value === "running") this.state.value = "stopped";
  }

  /** Goes on with the positions that it has not read. */
  async run(): Promise<void> {
    const { signal: ended } = (this.abort = new AbortController());
    this.state.value = "running";
    this.error.value = undefined;
    const full = this.messages.value.length + enough;
    try {
      while (this.end > this.low && this.messages.value.length < full) await this.window(ended);
      if (!ended.aborted) this.state.value = this.end > this.low ? "paused" : "done";
    } catch (error) {
      if (ended.aborted) return;
      this.error.value = error;
      this.state.value = "failed";
    }
  }

  /** Searches the newest positions that are left. */
  private async window(ended: AbortSignal): Promise<void> {
    const start = Math.max(this.low, this.end - (this.want.key ? this.step * 100 : this.step));
    const found: Shown[] = [];
    for (let after = start; ; ) {
      let part: Part;
      try {
        part = await this.ask(this.stream, this.want, after, this.end, ended);
      } catch (error) {
        const { oldest = 0 } = error as Partial<Failure>;
        if (oldest <= after + 1) throw error;
        this.low = after = Math.min(oldest - 1, this.end); // older ones are not kept any more
        if (after === this.end) break;
        continue;
      }
      ended.throwIfAborted();
      found.push(...part.messages);
      after = part.next;
      this.read.value = this.to - this.end + after - start;
      if (part.done || after >= this.end) break;
    }
    this.messages.value = [...this.messages.value, ...found.reverse()];
    this.step = found.length > enough ? least : Math.min(this.step * 3, most);
    this.end = Math.max(start, this.low);
    this.read.value = this.end > this.low ? this.to - this.end : this.all;
  }
}
