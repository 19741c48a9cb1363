// A connection to /ws whose frames are shown as they are. The client of the console is not used here: it would hide its own frames.
import { signal } from "@preact/signals";

/** A frame, as it was sent or received. */
export interface Frame {
  n: number;
  time: number;
  out: boolean;
  text: string;
  /** Bytes of UTF-8. */
  size: number;
  /** The type of the message, with the code of an error; "" if it has none. */
  type: string;
  failed: boolean;
  /** How long its request waited for it, in microseconds. */
  took: number | undefined;
}

/** How many frames are kept, and how large their texts are together at most, in characters. */
export const mostFrames = 1000;
export const mostText = 4 << 20;
/** How often the view changes, in milliseconds. */
const pace = 100;
/** How many requests may wait for an answer; of further ones the time is not known. */
const mostWaiting = 1000;

const bytesOf = new TextEncoder();

export type State = { name: "closed"; why: string } | { name: "connecting" | "open" };

export class Wire {
  readonly state = signal<State>({ name: "closed", why: "" });
  /** The frames that are shown, the newest first. */
  readonly frames = signal<readonly Frame[]>([]);
  readonly paused = signal(false);
  /** How many frames came in all. */
  readonly count = signal(0);
  private kept: Frame[] = [];
  private text = 0;
  private n = 0;
  private socket: WebSocket | undefined;
  private readonly waiting = new Map<string, number>();
  private timer = 0;

  /** Connects, and sends the token, if there is one, in the first frame. It is not kept, and the log does not show it. */
  connect(token: string): void {
    this.close();
    const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/ws`, ["tidewire.v1"]);
    this.socket = socket;
    this.waiting.clear();
    this.state.value = { name: "connecting" };
    socket.onopen = () => {
      this.state.value = { name: "open" };
      if (token) this.send(JSON.stringify({ type: "auth", id: "auth", token }));
    };
    socket.onmessage = ({ data }) => this.add(false, String(data));
    socket.onclose = ({ code, reason }) => {
      if (socket !== this.socket) return;
      this.socket = undefined;
      this.state.value = { name: "closed", why: code === 1006 ? "The connection could not be opened, or was lost." : `The connection has ended with code ${code}${reason && `: ${reason}`}.` };
    };
  }

  /** Ends the connection. The frames stay. */
  close(): void {
    const { socket } = this;
    this.socket = undefined;
    if (!socket) return;
    socket.onopen = socket.onmessage = null;
    socket.close(1000);
    this.state.value = { name: "closed", why: "You have ended the connection." };
  }

  send(text: string): void {
    this.socket?.send(text);
    this.add(true, text);
  }

  /** Holds the view, or shows all that came meanwhile. Frames are kept in both cases. */
  pause(paused: boolean): void {
    this.paused.value = paused;
    this.show();
  }

  clear(): void {
    this.kept = [];
    this.text = 0;
    this.frames.value = [];
  }

  private add(out: boolean, raw: string): void {
    const now = performance.now();
    const message = read(raw);
    const text = out && message?.type === "auth" ? JSON.stringify({ ...message, token: "•••" }) : raw;
    const id = message?.id === undefined ? undefined : JSON.stringify(message.id);
    let took: number | undefined;
    if (id !== undefined && out) {
      if (this.waiting.size < mostWaiting) this.waiting.set(id, now);
    } else if (id !== undefined && (message!.type === "ok" || message!.type === "error")) {
      const sent = this.waiting.get(id);
      if (this.waiting.delete(id)) took = (now - sent!) * 1000;
    }
    const failed = message?.type === "error";
    const type = failed && message.code ? `error: ${message.code}` : typeof message?.type === "string" ? message.type : Array.isArray(message) ? "batch" : "";
    this.kept.push({ n: ++this.n, time: Date.now(), out, text, size: bytesOf.encode(raw).length, type, failed, took });
    this.text += text.length;
    while (this.kept.length > mostFrames || (this.text > mostText && this.kept.length > 1)) this.text -= this.kept.shift()!.text.length;
    this.timer ||= window.setTimeout(() => this.show(), pace);
  }

  private show(): void {
    clearTimeout(this.timer);
    this.timer = 0;
    this.count.value = this.n;
    if (!this.paused.value) this.frames.value = this.kept.toReversed();
  }
}

/** The message of a frame, if it is JSON. */
function read(text: string): { type?: unknown; id?: unknown; code?: unknown } | undefined {
  try {
    return JSON.parse(text) ?? undefined;
  } catch {
    return undefined;
  }
}

/** The frames that have a text, of one direction or both. */
export function matching(frames: readonly Frame[], filter: string, direction: string): Frame[] {
  const find = filter.toLowerCase();
  return frames.filter(({ out, text }) => (!direction || out === (direction === "out")) && text.toLowerCase().includes(find));
}

/** A message that can be sent as it stands. */
export interface Template {
  name: string;
  type: string;
  summary: string;
  payload: object;
}

/** The examples of the description of /ws: each message of a client has some. */
export function templatesOf(description: string): Template[] {
  const { messages } = JSON.parse(description).components as { messages: Record<string, { name: string; summary: string; examples?: { name: string; payload: object }[] }> };
  return Object.values(messages).flatMap(({ name: type, summary, examples = [] }) => examples.map(({ name, payload }) => ({ name, type, summary, payload })));
}

/** The text of a template, with an id that no other has had if it has one. */
export const textOf = ({ payload }: Template, id: number): string => JSON.stringify("id" in payload ? { ...payload, id } : payload, null, 2);
