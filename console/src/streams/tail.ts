// A stream that is followed.
import type { Codec, Message } from "tidewire";
import type { Source } from "../parts/tail.js";
import { client } from "../session.js";
import { info, type Shown } from "./messages.js";

/** Payloads as they come. */
export const raw: Codec<string | Uint8Array> = { encode: (value) => value, decode: (payload) => payload };

/** The messages of a stream, or those of a key. Of a key none is left out. */
export const streamSource = (stream: string, key: string): Source<Shown, Message<string | Uint8Array>> => ({
  open(after, gap) {
    const start = after === undefined ? { from: "end" as const } : { after };
    const subscription = client().stream(stream, { codec: raw }).subscribe({ ...start, credits: 1000, onGap: ({ oldest }) => gap(oldest), ...(key && { keys: [key] }) });
    return {
      ready: subscription.ready, pages: () => subscription.pages(1000), close: () => subscription.close(),
      get position() {
        return subscription.position;
      },
    };
  },
  show: ({ position, time, key, headers, value }) => ({ position, time, key, headers: headers && JSON.stringify(headers), payload: value }),
  ...(!key && { head: async () => (await info(stream)).head }),
});
