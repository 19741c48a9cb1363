import { useRef } from "preact/hooks";
import { ask, part } from "../api.js";
import { full, short } from "../format/numbers.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { change, go, href, place } from "../router.js";
import { inOrder, ratesOf, silence, type Look, type Rooms } from "./data.js";

/** The largest rooms, of all servers. */
export function RoomList() {
  const find = place.value.query.get("find") ?? "";
  const before = useRef<Look | undefined>(undefined);
  const order = useRef<string[]>([]);
  const { value, error, again } = useLoad(async (signal) => {
    const answer = await ask<Rooms>(`rooms?find=${part(find)}`, { signal });
    const now = { at: performance.now(), rooms: inOrder(order.current, answer.rooms) };
    const rates = ratesOf(before.current, now);
    before.current = now;
    order.current = now.rooms.map(({ room }) => room);
    return { ...answer, rooms: now.rooms, rates };
  }, [find], 2000);
  const rooms = value?.rooms ?? [];
  return (
    <>
      <h1 tabIndex={-1}>Rooms</h1>
      {error !== undefined && <Trouble error={error} retry={again} title={value ? "This is not up to date" : "The rooms could not be listed"} />}
      <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
        <label>Find <input type="search" value={find} maxLength={128} onInput={(event) => { order.current = []; change({ find: event.currentTarget.value }, { replace: true }); }} /></label>
        <p class="soft" role="status">{rooms.length > 0 && `${value!.truncated ? "The largest " : ""}${full(rooms.length)} ${rooms.length === 1 ? "room" : "rooms"}`}</p>
      </form>
      {value?.silent && <p class="bad">{silence(value.silent, "its rooms and members are missing.")}</p>}
      {value && !rooms.length && <Empty title={find ? "No room with this in its name has members" : "Nobody is in a room now, or in none that you may see"}><p>Open a room below, and join it.</p></Empty>}
      {rooms.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Rooms">
          <table class="list">
            <thead><tr><th scope="col">Name</th><th scope="col" class="n">Connections</th><th scope="col" class="n">Chats/s</th><th scope="col">Stored</th></tr></thead>
            <tbody>
              {rooms.map(({ room, count, stored }) => (
                <tr key={room}>
                  <th scope="row"><a href={href(["rooms", room])}>{room}</a></th>
                  <td class="n">{full(count)}</td>
                  <td class="n">{value!.rates.has(room) ? short(value!.rates.get(room)!) : "–"}</td>
                  <td>{stored ? "yes" : "no"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
      <Open />
    </>
  );
}

/** Shows a room that may have no members yet. */
function Open() {
  const name = useRef<HTMLInputElement>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    const room = name.current!.value;
    if (room) go(href(["rooms", room]));
    else name.current!.focus();
  };
  return (
    <section class="card" aria-labelledby="open">
      <h2 id="open">Open a room</h2>
      <form class="bar" onSubmit={submit}>
        <label>Name <input ref={name} maxLength={128} placeholder="public" spellcheck={false} autocomplete="off" /></label>
        <button class="main">Open</button>
      </form>
    </section>
  );
}
