import type { Batcher, Stored } from "./batcher.js";
import { stored } from "./batcher.js";
import { codecOf, payloadFields, type Codec, type Typed } from "./codec.js";
import type { Core } from "./core.js";
import { hooks, type Headers } from "./hooks.js";
import type { Answer, CallOptions } from "./request.js";
import { Subscription, type SubscribeOptions } from "./subscription.js";

/** What a message has besides its value. */
export interface MessageOptions {
  /** Messages with one key are in one partition, in their order. */
  key?: string;
  headers?: Headers;
}

export interface PublishOptions extends MessageOptions, CallOptions {}

/** What the server says of several messages that are stored. */
export interface StoredAll extends Stored {
  /** How many. They are at `position`, `position` + 1 and so on. */
  count: number;
}

/** The headers of a message on the wire, if it has some: those of the program, and what a hook adds. */
const headersJSON = ({ headers }: MessageOptions): string | undefined => JSON.stringify(hooks.sending_ ? hooks.sending_(headers) : headers);

/** A message on the wire, as JSON. */
export function messageJSON(payload: string | Uint8Array, options: MessageOptions, headers = headersJSON(options)): string {
  const { key } = options;
  let fields = `{${payloadFields(payload)}`;
  if (key !== undefined) fields += `,"key":${JSON.stringify(key)}`;
  if (headers !== undefined) fields += `,"headers":${headers}`;
  return `${fields}}`;
}

/** A log of messages, each with a position. */
export class Stream<T = unknown> {
  private readonly codec_: Codec<T>;

  /** @internal */
  constructor(private readonly core_: Core, private readonly batcher_: Batcher, readonly name: string, typed: Typed<T>) {
    this.codec_ = codecOf(typed);
  }

  /** Stores a message. The promise is fulfilled after the commit. The message is stored once, also if it was sent again. */
  publish(value: T, options: PublishOptions = {}): Promise<Stored> {
    try {
      const headers = headersJSON(options);
      return this.batcher_.publish_(this.name, headers, messageJSON(this.codec_.encode(value), options, headers), options);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Stores up to 1,000 messages, all or none. In a stream with partitions they go to that of the key. */
  async publishAll(values: readonly T[], options: PublishOptions = {}): Promise<StoredAll> {
    const messages = values.map((value) => messageJSON(this.codec_.encode(value), options)).join();
    const outbox = this.core_.outbox_;
    const body = `"stream":${JSON.stringify(this.name)},"messages":[${messages}]}`;
    const read = (answer: Answer) => ({ ...stored(answer), count: answer.count ?? values.length });
    return outbox.call_(options, outbox.storing_("publish", this.name, () => body, read));
  }

  /** Iterates over the messages that are stored, and then over those to come. */
  subscribe(options: SubscribeOptions = {}): Subscription<T> {
    return new Subscription(this.core_, this.name, this.codec_, options);
  }
}
