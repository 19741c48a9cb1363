// Which streams hold the messages of a queue: the stream of its name, or, of a queue with priorities or partitions, name/0 and so on.
import { ask, part } from "../api.js";
import { codeOf } from "../parts/notice.js";
import type { Options } from "../queues/data.js";

const shard = /^([^]+)\/(?:0|[1-9]\d*)$/;

/** The queue with priorities or partitions whose messages a stream of this name would hold. */
const familyOf = (stream: string) => shard.exec(stream)?.[1];

/** The queue whose messages the stream holds. `parts` says in how many streams a queue is, if not in the one of its name. */
export function queueOf(stream: string, queues: ReadonlySet<string>, parts: ReadonlyMap<string, number>): string | undefined {
  if (queues.has(stream) && !parts.get(stream)) return stream;
  const family = familyOf(stream);
  return family !== undefined && Number(stream.slice(family.length + 1)) < (parts.get(family) ?? 0) ? family : undefined;
}

/** Asks in how many streams a queue is. If the user may not see its options, the names decide: a stream that is called like a part of it is one. */
async function partsOf(queue: string, signal: AbortSignal): Promise<number> {
  try {
    const { priorities, partitions } = await ask<Options>(`queues/${part(queue)}/options`, { signal });
    return (priorities ?? 0) + (partitions ?? 0);
  } catch (error) {
    if (codeOf(error) === "forbidden") return Infinity;
    throw error;
  }
}

/** For each of the streams that holds the messages of a queue, that queue. Only queues that have a stream like a part of them are asked for their options. */
export async function holders(streams: readonly string[], signal: AbortSignal): Promise<Map<string, string>> {
  if (!streams.length) return new Map();
  const queues = new Set((await ask<{ queues: { queue: string }[] }>("queues", { signal })).queues.map(({ queue }) => queue));
  const families = [...new Set(streams.map(familyOf))].filter((family) => family !== undefined && queues.has(family)) as string[];
  const parts = new Map(await Promise.all(families.map(async (family) => [family, await partsOf(family, signal)] as const)));
  return new Map(streams.flatMap((stream) => {
    const queue = queueOf(stream, queues, parts);
    return queue === undefined ? [] : [[stream, queue] as const];
  }));
}
