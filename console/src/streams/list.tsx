import { useRef } from "preact/hooks";
import { ask } from "../api.js";
import { minute } from "../format/time.js";
import { Create, Find, found } from "../parts/list.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { href } from "../router.js";
import { holders } from "./holders.js";

interface Listed {
  stream: string;
  keyed: boolean;
  partitions?: number;
  created: string;
}

/** How many streams are shown: a search finds the others. */
const most = 500;

/** All streams that the user may see. */
export function StreamList() {
  const { value, error, again } = useLoad((signal) => ask<{ streams: Listed[] }>("streams", { signal }), [], 10_000);
  const all = value?.streams ?? [];
  const shown = found(all, ({ stream }) => stream);
  const names = all.map(({ stream }) => stream);
  const holds = useLoad((signal) => holders(names, signal), [names]).value;
  return (
    <>
      <h1 tabIndex={-1}>Streams</h1>
      {error !== undefined && <Trouble error={error} retry={again} title="The streams could not be listed" />}
      <Find all={all.length} found={shown.length} most={most} one="stream" />
      {value && all.length === 0 && <Empty title="There is no stream yet, or none that you may see"><p>Create one below, or with <code>tidewire stream create</code>.</p></Empty>}
      {shown.length > 0 && (
        <div class="scroll">
          <table class="list">
            <thead><tr><th scope="col">Name</th><th scope="col">Read by key</th><th scope="col" class="n">Partitions</th><th scope="col">Created</th></tr></thead>
            <tbody>
              {shown.slice(0, most).map(({ stream, keyed, partitions, created }) => (
                <tr key={stream}>
                  <th scope="row">
                    <a href={href(["streams", stream])}>{stream}</a>
                    {holds?.has(stream) && <div class="below soft">holds the messages of <a href={href(["queues", holds.get(stream)!])}>queue {holds.get(stream)}</a></div>}
                  </th>
                  <td>{keyed ? "yes" : "no"}</td>
                  <td class="n">{partitions ?? "–"}</td>
                  <td><time dateTime={created}>{minute(created)}</time></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
      {value && <CreateStream />}
    </>
  );
}

/** Creates a stream, and shows it. */
function CreateStream() {
  const keyed = useRef<HTMLInputElement>(null);
  return (
    <Create title="Create a stream" api="streams" screen="streams" body={() => (keyed.current!.checked ? { keyed: true } : {})}>
      <label class="check"><input type="checkbox" ref={keyed} /> can be read by key</label>
    </Create>
  );
}
