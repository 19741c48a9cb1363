import { payloadOf, type Codec } from "./codec.js";
import { errorOf } from "./errors.js";
import type { Headers } from "./hooks.js";

/** A message as it comes. */
export interface RawMessage {
  position: number;
  time: string;
  key?: string;
  headers?: Headers;
  payload?: string;
  payload_base64?: string;
  partition?: number;
}

/** A message of a stream. */
export class Message<T> {
  constructor(
    readonly value: T,
    /** Where it is. Positions rise, with gaps. */
    readonly position: number,
    /** When it was stored: RFC 3339, with microseconds. */
    readonly time: string,
    readonly key: string | undefined,
    readonly headers: Headers | undefined,
    /** Its partition, in a group that shares the partitions of the stream. */
    readonly partition: number | undefined,
  ) {}
}

/** Reads the payload of a message with a codec. What that refuses is {@link InvalidMessage}. */
export function decode<T>(codec: Codec<T>, raw: RawMessage): T | Promise<T> {
  const invalid = (cause: any) =>
    errorOf({ code: "invalid_message", message: `the payload is not valid: ${cause?.message ?? cause}`, received: raw }, undefined, cause);
  try {
    const value = codec.decode(payloadOf(raw));
    if (value instanceof Promise) {
      return value.catch((cause) => {
        throw invalid(cause);
      });
    }
    return value;
  } catch (cause) {
    throw invalid(cause);
  }
}
