import { useRef, useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { full, span } from "../format/numbers.js";
import { useLoad } from "../parts/load.js";
import { Empty, messageOf, Trouble } from "../parts/notice.js";
import { change, go, href, place } from "../router.js";
import { path, type Stats } from "./data.js";

/** How many queues are shown: each is a request. A search finds the others. */
const most = 50;

/** The age of the oldest message, if there is one. */
export const oldest = ({ ready, leased, delayed, oldest_ms }: Stats): string => (ready + leased + delayed ? span(oldest_ms) : "–");

/** All queues that the user may see. */
export function QueueList() {
  const { value, error, again } = useLoad((signal) => ask<{ queues: { queue: string }[] }>("queues", { signal }), [], 10_000);
  const find = place.value.query.get("find") ?? "";
  const all = value?.queues ?? [];
  const found = all.filter(({ queue }) => queue.toLowerCase().includes(find.toLowerCase())).map(({ queue }) => queue);
  return (
    <>
      <h1 tabIndex={-1}>Queues</h1>
      {error !== undefined && <Trouble error={error} retry={again} title="The queues could not be listed" />}
      {all.length > 0 && (
        <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
          <label>Find <input type="search" value={find} onInput={(event) => change({ find: event.currentTarget.value }, { replace: true })} /></label>
          <p class="soft" role="status">{found.length === all.length ? `${full(all.length)} queues` : `${full(found.length)} of ${full(all.length)} queues`}{found.length > most && `, the first ${most} of them`}</p>
        </form>
      )}
      {value && all.length === 0 && <Empty title="There is no queue yet, or none that you may see"><p>Create one below, or with <code>tidewire queue create</code>.</p></Empty>}
      {all.length > 0 && found.length === 0 && <Empty title="No queue has this in its name"><p><button type="button" onClick={() => change({ find: undefined })}>Show all</button></p></Empty>}
      {found.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Queues">
          <table class="list">
            <thead>
              <tr><th scope="col">Name</th>{["Ready", "Leased", "Delayed", "Dead", "Oldest"].map((name) => <th key={name} scope="col" class="n">{name}</th>)}<th scope="col">State</th></tr>
            </thead>
            <tbody>{found.slice(0, most).map((queue) => <Row key={queue} queue={queue} />)}</tbody>
          </table>
        </div>
      )}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
      {value && <Create />}
    </>
  );
}

function Row({ queue }: { queue: string }) {
  const { value: is, error } = useLoad((signal) => ask<Stats>(path(queue), { signal }), [queue], 5000);
  return (
    <tr>
      <th scope="row"><a href={href(["queues", queue])}>{queue}</a></th>
      {error !== undefined ? <td colSpan={6} class="soft">{messageOf(error)}</td> : (
        <>
          {(["ready", "leased", "delayed", "dead"] as const).map((name) => <td key={name} class={name === "dead" && is?.dead ? "n bad" : "n"}>{is ? full(is[name]) : "–"}</td>)}
          <td class="n">{is ? oldest(is) : "–"}</td>
          <td>{is?.paused ? <strong>paused</strong> : "delivers"}</td>
        </>
      )}
    </tr>
  );
}

/** Creates a queue, and shows it. */
function Create() {
  const name = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<unknown>();
  const submit = async (event: Event) => {
    event.preventDefault();
    const queue = name.current!.value;
    if (!queue) return name.current!.focus();
    try {
      await ask(`queues/${part(queue)}`, { method: "POST", body: {} });
      go(href(["queues", queue]));
    } catch (why) {
      setError(why);
    }
  };
  return (
    <section class="card" aria-labelledby="create">
      <h2 id="create">Create a queue</h2>
      <form class="bar" onSubmit={submit}>
        <label>Name <input ref={name} maxLength={128} spellcheck={false} autocomplete="off" aria-describedby="create-error" /></label>
        <button class="main">Create</button>
      </form>
      <p id="create-error" class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
    </section>
  );
}
