import { useRef, useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { full } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { useLoad } from "../parts/load.js";
import { Empty, messageOf, Trouble } from "../parts/notice.js";
import { change, go, href, place } from "../router.js";

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
  const find = place.value.query.get("find") ?? "";
  const all = value?.streams ?? [];
  const found = all.filter(({ stream }) => stream.toLowerCase().includes(find.toLowerCase()));
  return (
    <>
      <h1 tabIndex={-1}>Streams</h1>
      {error !== undefined && <Trouble error={error} retry={again} title="The streams could not be listed" />}
      {value && all.length > 0 && (
        <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
          <label>Find <input type="search" value={find} onInput={(event) => change({ find: event.currentTarget.value }, { replace: true })} /></label>
          <p class="soft" role="status">{found.length === all.length ? `${full(all.length)} streams` : `${full(found.length)} of ${full(all.length)} streams`}{found.length > most && `, the first ${most} of them`}</p>
        </form>
      )}
      {value && all.length === 0 && <Empty title="There is no stream yet, or none that you may see"><p>Create one below, or with <code>tidewire stream create</code>.</p></Empty>}
      {all.length > 0 && found.length === 0 && <Empty title="No stream has this in its name"><p><button type="button" onClick={() => change({ find: undefined })}>Show all</button></p></Empty>}
      {found.length > 0 && (
        <div class="scroll">
          <table class="list">
            <thead><tr><th scope="col">Name</th><th scope="col">Read by key</th><th scope="col" class="n">Partitions</th><th scope="col">Created</th></tr></thead>
            <tbody>
              {found.slice(0, most).map(({ stream, keyed, partitions, created }) => (
                <tr key={stream}>
                  <th scope="row"><a href={href(["streams", stream])}>{stream}</a></th>
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
      {value && <Create />}
    </>
  );
}

/** Creates a stream, and shows it. */
function Create() {
  const name = useRef<HTMLInputElement>(null);
  const keyed = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<unknown>();
  const submit = async (event: Event) => {
    event.preventDefault();
    const stream = name.current!.value;
    if (!stream) return name.current!.focus();
    try {
      await ask(`streams/${part(stream)}`, { method: "POST", body: keyed.current!.checked ? { keyed: true } : {} });
      go(href(["streams", stream]));
    } catch (why) {
      setError(why);
    }
  };
  return (
    <section class="card" aria-labelledby="create">
      <h2 id="create">Create a stream</h2>
      <form class="bar" onSubmit={submit}>
        <label>Name <input ref={name} maxLength={128} spellcheck={false} autocomplete="off" aria-describedby="create-error" /></label>
        <label class="check"><input type="checkbox" ref={keyed} /> can be read by key</label>
        <button class="main">Create</button>
      </form>
      <p id="create-error" class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
    </section>
  );
}
