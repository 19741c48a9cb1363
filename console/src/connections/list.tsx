import { ask } from "../api.js";
import { bytes, full, short, span } from "../format/numbers.js";
import { chosen, Choices } from "../parts/act.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { change, href, place } from "../router.js";
import type { Listed } from "./data.js";
import { Explain } from "./explain.js";

const orders = { newest: "Newest", slowest: "Slowest", unsent: "Most unsent" };

interface Answer {
  node?: string;
  connections: Listed[];
  matching: number;
  total: number;
}

/** The connections of the server that answers. */
export function ConnectionList() {
  const { query } = place.value;
  const order = chosen(orders, query.get("order"));
  const user = query.get("user") ?? "";
  const { value, error, again } = useLoad((signal) => ask<Answer>(`connections?${new URLSearchParams({ order, user })}`, { signal }), [order, user], 5000);
  const some = value?.connections ?? [];
  return (
    <>
      <h1 tabIndex={-1}>Connections</h1>
      {error !== undefined && <Trouble error={error} retry={again} title={value ? "This is not up to date" : "The connections could not be listed"} />}
      <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
        <Choices label="Order" names={orders} now={order} choose={(name) => change({ order: name }, { replace: true })} />
        <label>User contains <input type="search" value={user} spellcheck={false} autocomplete="off" onInput={(event) => change({ user: event.currentTarget.value }, { replace: true })} /></label>
        {value && <p class="soft" role="status">{some.length < value.matching && `The first ${full(some.length)} of `}{full(value.matching)}{user && ` of ${full(value.total)}`} {value.total === 1 ? "connection" : "connections"} {value.node ? `of the server ${value.node} alone` : "of this server"}</p>}
      </form>
      {value && some.length === 0 && (
        <Empty title={user ? "No connection has such a user" : "There is no WebSocket connection"}>
          <p>{user ? <button type="button" onClick={() => change({ user: undefined })}>Show all</button> : "HTTP requests are not listed here. Follow a stream live to see a connection of your own."}</p>
        </Empty>
      )}
      {some.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Connections">
          <table class="list tight">
            <thead>
              <tr>
                <th scope="col">User</th>
                {["Waits", "Unsent", "In", "Out", "Subscribed", "Open for"].map((name) => <th key={name} scope="col" class="n">{name}</th>)}
                {["Role", "Endpoint", "Client", "Address"].map((name) => <th key={name} scope="col">{name}</th>)}
              </tr>
            </thead>
            <tbody>
              {some.map((one) => (
                <tr key={one.connection}>
                  <th scope="row"><a href={href(["connections", one.connection])}>{one.user || one.connection}</a></th>
                  <td class={waits(one) ? "n bad" : "n"}>{waits(one) ? span(one.waiting_ms) : "–"}</td>
                  <td class="n">{bytes(one.unsent_bytes)}</td>
                  <Traffic messages={one.messages_in} size={one.bytes_in} />
                  <Traffic messages={one.messages_out} size={one.bytes_out} />
                  <td class="n">{full(one.subscriptions + one.consumers + one.rooms)}</td>
                  <td class="n">{since(one.opened)}</td>
                  <td>{one.role ?? "–"}</td>
                  <td>{one.endpoint}</td>
                  <td class="client" title={one.client}>{one.client ?? "–"}</td>
                  <td>{one.address}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
      {value && <Explain />}
    </>
  );
}

const Traffic = ({ messages, size }: { messages: number; size: number }) => <td class="n">{short(messages)}<br /><small class="soft">{bytes(size)}</small></td>;

/** How long ago something was. */
export const since = (time: string) => span(Math.max(0, Date.now() - Date.parse(time)));

/** Shorter times are those of a client that reads. */
export const waits = ({ waiting_ms }: { waiting_ms: number }) => waiting_ms >= 1000;
