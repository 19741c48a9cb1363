// What the user may do with a queue, so that the console offers nothing else.
import { ask } from "../api.js";
import { useLoad } from "../parts/load.js";
import { codeOf } from "../parts/notice.js";
import { closed } from "../session.js";
import { path } from "./data.js";

/** For each right the refusal, if it is missing. */
export interface Rights {
  admin?: unknown;
  enqueue?: unknown;
}

/** Why the server refuses a request without content: for want of the right, or else of the content. So nothing is done. */
async function refusal(at: string, signal: AbortSignal): Promise<unknown> {
  try {
    await ask(at, { method: "POST", body: {}, signal });
  } catch (error) {
    if (signal.aborted) throw error;
    if (codeOf(error) === "forbidden") return error;
  }
  return undefined;
}

/** The rights on a queue, undefined while they are not known. In open mode there are all. */
export function useRights(queue: string): Rights | undefined {
  const { value } = useLoad(async (signal): Promise<Rights | undefined> => {
    if (closed.value === undefined) return undefined;
    if (!closed.value) return {};
    const [admin, enqueue] = await Promise.all([refusal(path(queue, "/dead/redrive"), signal), refusal(path(queue, "/messages"), signal)]);
    return { admin, enqueue };
  }, [queue, closed.value]);
  return value;
}
