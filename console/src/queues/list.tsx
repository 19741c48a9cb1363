import { ask } from "../api.js";
import { full, span } from "../format/numbers.js";
import { Create, Find, found } from "../parts/list.js";
import { useLoad } from "../parts/load.js";
import { Empty, messageOf, Trouble } from "../parts/notice.js";
import { href } from "../router.js";
import { path, type Stats } from "./data.js";

/** How many queues are shown: each is a request. A search finds the others. */
const most = 50;

const waits = ({ ready, leased, delayed }: Stats): boolean => ready + leased + delayed > 0;

/** The age of the oldest message, if there is one. */
export const oldest = (is: Stats): string => (waits(is) ? span(is.oldest_ms) : "–");

/** All queues that the user may see. */
export function QueueList() {
  const { value, error, again } = useLoad((signal) => ask<{ queues: { queue: string }[] }>("queues", { signal }), [], 10_000);
  const all = value?.queues ?? [];
  const shown = found(all, ({ queue }) => queue);
  return (
    <>
      <h1 tabIndex={-1}>Queues</h1>
      {error !== undefined && <Trouble error={error} retry={again} title="The queues could not be listed" />}
      <Find all={all.length} found={shown.length} most={most} one="queue" />
      {value && all.length === 0 && <Empty title="There is no queue yet, or none that you may see"><p>Create one below, or with <code>tidewire queue create</code>.</p></Empty>}
      {shown.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Queues">
          <table class="list">
            <thead>
              <tr><th scope="col">Name</th>{["Ready", "Leased", "Delayed", "Dead"].map((name) => <th key={name} scope="col" class="n">{name}</th>)}<th scope="col" class="n rest">Oldest</th><th scope="col" class="rest">State</th></tr>
            </thead>
            <tbody>{shown.slice(0, most).map(({ queue }) => <Row key={queue} queue={queue} />)}</tbody>
          </table>
        </div>
      )}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
      {value && <Create title="Create a queue" api="queues" screen="queues" body={() => ({})} />}
    </>
  );
}

/** A narrow page has the age and the state below the name, in place of columns that it would cut off. */
function Row({ queue }: { queue: string }) {
  const { value: is, error } = useLoad((signal) => ask<Stats>(path(queue), { signal }), [queue], 5000);
  return (
    <tr>
      <th scope="row">
        <a href={href(["queues", queue])}>{queue}</a>
        {is && <div class="below narrow soft">{waits(is) && `oldest ${oldest(is)}, `}{is.paused ? <strong>paused</strong> : "delivers"}</div>}
      </th>
      {error !== undefined ? <td colSpan={6} class="soft">{messageOf(error)}</td> : (
        <>
          {(["ready", "leased", "delayed", "dead"] as const).map((name) => <td key={name} class={name === "dead" && is?.dead ? "n bad" : "n"}>{is ? full(is[name]) : "–"}</td>)}
          <td class="n rest">{is ? oldest(is) : "–"}</td>
          <td class="rest">{is?.paused ? <strong>paused</strong> : "delivers"}</td>
        </>
      )}
    </tr>
  );
}
