import { useEffect, useRef, useState } from "preact/hooks";
import { visible } from "../format/bytes.js";
import { full } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { messageOf } from "../parts/notice.js";
import { reasonsOf, type Filter, type Reasons } from "./data.js";
import { select } from "./filter.js";

/** Groups the dead letters that match by their reasons. The server has no such numbers, so the console reads them when it is asked to. */
export function ReasonTable({ queue, filter }: { queue: string; filter: Filter }) {
  const [found, setFound] = useState<Reasons>();
  const [error, setError] = useState<unknown>();
  const [read, setRead] = useState<number>();
  const abort = useRef<AbortController | undefined>(undefined);
  useEffect(() => {
    setFound(undefined);
    setRead(undefined);
    setError(undefined);
    return () => abort.current?.abort();
  }, [queue, JSON.stringify(filter)]);
  const group = async () => {
    abort.current?.abort();
    const { signal } = (abort.current = new AbortController());
    setError(undefined);
    setRead(0);
    try {
      setFound(await reasonsOf(queue, filter, signal, setRead));
    } catch (why) {
      if (!signal.aborted) setError(why);
    }
    if (!signal.aborted) setRead(undefined);
  };
  const stop = () => {
    abort.current?.abort();
    setRead(undefined);
  };
  return (
    <section class="card" aria-labelledby="reasons">
      <div class="head">
        <h2 id="reasons">By reason</h2>
        {read === undefined ? <button type="button" onClick={group}>{found ? "Group again" : "Group by reason"}</button> : <button type="button" onClick={stop}>Stop</button>}
      </div>
      <p class="soft" role="status">{read !== undefined ? `Reading: ${full(read)} so far.` : found ? `${found.more ? `Of the oldest ${full(found.read)}; there are more. A filter finds them.` : `Of ${full(found.read)}.`}` : ""}</p>
      <p class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
      {found && found.groups.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-labelledby="reasons">
          <table class="list">
            <thead><tr><th scope="col">Reason</th><th scope="col" class="n">Dead letters</th><th scope="col">Last died</th></tr></thead>
            <tbody>
              {found.groups.map(({ reason, count, last }) => (
                <tr key={reason ?? ""}>
                  <th scope="row">{reason === undefined ? <span class="soft">none</span> : <button type="button" class="link wrap" onClick={() => select({ ...filter, reason })}>{visible(reason)}</button>}</th>
                  <td class="n">{full(count)}</td>
                  <td>{last === undefined ? "–" : <time dateTime={last}>{minute(last)}</time>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
