import { byteLength } from "./codec.js";
import { must } from "./errors.js";
import type { Outbox } from "./outbox.js";
import type { Answer, CallOptions, Request, Spec } from "./request.js";

/** What the server says of a message that is stored. */
export interface Stored {
  position: number;
  /** The partition, if the stream has some. */
  partition?: number;
  /** It was stored before: this was a repetition, be it one that the library itself has sent after a reconnect. */
  duplicate: boolean;
}

const maxMessages = 1_000;
const maxBytes = 256 * 1024;

interface Batch {
  request_: Request;
  key_: string | undefined;
  bytes_: number;
}

// JSON of a key that is a text, and of headers that are texts: without another object or a list.
const texts = /^"([^"\\]|\\.)*"\{("([^"\\]|\\.)*"[:,]?)*\}$/;

/**
 * Whether the server takes this key and these headers for certain. Other messages go alone, since the server refuses a request as a whole: it
 * takes no NUL and no half of a surrogate pair, keys of 1,024 bytes, and headers of 64 KiB.
 */
function isSure(key = "", headers = "{}"): boolean {
  const all = JSON.stringify(key) + headers;
  return texts.test(all) && !/\\u(0000|d)/.test(all) && byteLength(key) <= 1_024 && headers.length * 3 <= 65_536;
}

/** Puts publishes of one stream that are called in one turn of the event loop into one request. */
export class Batcher {
  private readonly open_ = new Map<string, Batch>();

  constructor(private readonly outbox_: Outbox, private readonly enabled_: boolean) {
    outbox_.onSeal_ = () => this.open_.clear();
  }

  publish_(stream: string, headers: string | undefined, part: string, options: CallOptions & { key?: string }): Promise<Stored> {
    const { key } = options;
    const bytes = byteLength(part);
    const sure = isSure(key, headers);
    let batch = this.open_.get(stream);
    if (!batch || !sure || batch.key_ !== key || batch.bytes_ + bytes > maxBytes || batch.request_.callers_.length >= maxMessages) {
      batch = { request_: this.outbox_.request_(publishing(this.outbox_, stream)), key_: key, bytes_: 0 };
      if (this.enabled_ && sure) this.open_.set(stream, batch);
      else this.open_.delete(stream);
    }
    batch.bytes_ += bytes;
    const caller = this.outbox_.add_<Stored>(batch.request_, options);
    caller.part_ = part;
    if (batch.request_.callers_.length === 1) this.outbox_.submit_(batch.request_);
    return caller.promise_;
  }
}

/** How a publish is made of its calls, which have a message each. */
function publishing(outbox: Outbox, stream: string): Spec {
  const name = `"stream":${JSON.stringify(stream)},`;
  const body = ({ callers_ }: Request) =>
    callers_.length > 1 ? `${name}"messages":[${callers_.map((caller) => caller.part_).join()}]}` : name + callers_[0]!.part_.slice(1);
  return outbox.storing_("publish", stream, body, (answer, i) => stored(answer, i));
}

/** What an answer says of message i of its request. */
export function stored(answer: Answer, i = 0): Stored {
  const { partition, duplicate } = answer;
  const result: Stored = { position: must(answer, "position") + i, duplicate: !!duplicate };
  if (partition !== undefined) result.partition = partition;
  return result;
}
