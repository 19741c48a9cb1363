import { ask } from "../api.js";
import { full } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { Create, Find, found } from "../parts/list.js";
import { useLoad } from "../parts/load.js";
import { Empty, messageOf, Trouble } from "../parts/notice.js";
import { href } from "../router.js";
import { read } from "./data.js";

/** How many event stores are shown: each is a request. A search finds the others. */
const most = 50;

/** All event stores that the user may see. */
export function StoreList() {
  const { value, error, again } = useLoad((signal) => ask<{ stores: { store: string }[] }>("events/stores", { signal }), [], 10_000);
  const all = value?.stores ?? [];
  const shown = found(all, ({ store }) => store);
  return (
    <>
      <h1 tabIndex={-1}>Events</h1>
      {error !== undefined && <Trouble error={error} retry={again} title="The event stores could not be listed" />}
      <Find all={all.length} found={shown.length} most={most} one="event store" />
      {value && all.length === 0 && <Empty title="There is no event store yet, or none that you may see"><p>Create one below. The event store “default” is there after the first append.</p></Empty>}
      {shown.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Event stores">
          <table class="list">
            <thead><tr><th scope="col">Name</th><th scope="col" class="n">Last position</th><th scope="col">Last event</th><th scope="col">Time</th></tr></thead>
            <tbody>{shown.slice(0, most).map(({ store }) => <Row key={store} store={store} />)}</tbody>
          </table>
        </div>
      )}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
      {value && <Create title="Create an event store" api="events/stores" screen="events" />}
    </>
  );
}

function Row({ store }: { store: string }) {
  const { value, error } = useLoad((signal) => read(store, [], { backwards: true, limit: 1 }, signal), [store], 5000);
  const last = value?.[0];
  return (
    <tr>
      <th scope="row"><a href={href(["events", store])}>{store}</a></th>
      {error !== undefined ? <td colSpan={3} class="soft">{messageOf(error)}</td> : (
        <>
          <td class="n">{value ? full(last?.position ?? 0) : "–"}</td>
          <td class="key">{last?.type ?? "–"}</td>
          <td>{last ? <time dateTime={last.time}>{minute(last.time)}</time> : "–"}</td>
        </>
      )}
    </tr>
  );
}
