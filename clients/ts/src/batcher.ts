import { byteLength } from "./codec.js";
import type { Outbox } from "./outbox.js";
import type { Answer, CallOptions, Request } from "./request.js";

/** What the server says of a message that is stored. */
export interface Stored {
  position: number;
  /** The partition, if the stream has some. */
  partition?: number;
  /** It was stored before: this was a repetition. */
  duplicate: boolean;
}

const maxMessages = 1_000;
const maxBytes = 256 * 1024;

interface Batch {
  request: Request;
  key: string | undefined;
  bytes: number;
}

/** Puts publishes of one stream that are called in one turn of the event loop into one request. */
export class Batcher {
  private readonly open = new Map<string, Batch>();

  constructor(private readonly outbox: Outbox, private readonly enabled: boolean) {
    outbox.onSeal = () => this.open.clear();
  }

  publish(stream: string, key: string | undefined, part: string, options: CallOptions): Promise<Stored> {
    const bytes = byteLength(part);
    let batch = this.open.get(stream);
    if (!batch || batch.key !== key || batch.bytes + bytes > maxBytes || batch.request.callers.length >= maxMessages) {
      batch = { request: this.outbox.request(publishing(this.outbox, stream)), key, bytes: 0 };
      if (this.enabled) this.open.set(stream, batch);
    }
    batch.bytes += bytes;
    const caller = this.outbox.add<Stored>(batch.request, options);
    caller.part = part;
    if (batch.request.callers.length === 1) this.outbox.submit(batch.request);
    return caller.promise;
  }
}

/** How a publish is made of its calls, which have a message each. */
function publishing(outbox: Outbox, stream: string) {
  return {
    lane: `publish ${stream}`,
    mode: "repeat" as const,
    effect: true,
    write({ id, callers }: Request): string {
      const head = `{"type":"publish","id":${id},"stream":${JSON.stringify(stream)},${outbox.identity()}`;
      if (callers.length === 1) return head + callers[0]!.part.slice(1);
      return `${head}"messages":[${callers.map((caller) => caller.part).join()}]}`;
    },
    read: ({ position, partition, duplicate }: Answer, i: number): Stored => stored(position! + i, partition, duplicate),
  };
}

export function stored(position: number, partition: number | undefined, duplicate: boolean | undefined): Stored {
  return partition === undefined ? { position, duplicate: duplicate ?? false } : { position, partition, duplicate: duplicate ?? false };
}
