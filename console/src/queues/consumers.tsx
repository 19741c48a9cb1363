import { ask } from "../api.js";
import { since } from "../connections/list.js";
import { visible } from "../format/bytes.js";
import { full } from "../format/numbers.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { silence } from "../rooms/data.js";
import { href } from "../router.js";
import { path } from "./data.js";

/** A consumer of a connection; without one, the HTTP clients of a user. */
interface Consumer {
  node?: string;
  connection?: string;
  user?: string;
  client?: string;
  began: string;
  credits: number;
  unsettled: number;
}

interface Answer {
  /** The server that answers. */
  node?: string;
  consumers: Consumer[];
  total: number;
  silent?: string[];
}

/** Who consumes the queue, on all servers. */
export function Consumers({ queue }: { queue: string }) {
  const { value, error, again } = useLoad((signal) => ask<Answer>(path(queue, "/consumers"), { signal }), [queue], 2000);
  const some = value?.consumers ?? [];
  return (
    <>
      {error !== undefined && <Trouble error={error} retry={again} title={value ? "This is not up to date" : "The consumers could not be listed"} />}
      {value?.silent && <p class="bad">{silence(value.silent, "its consumers are missing.")}</p>}
      {value && <p class="soft" role="status">{some.length < value.total && `The first ${full(some.length)} of `}{full(value.total)} {value.total === 1 ? "consumer" : "consumers"}. Programs that consume in the database itself are not listed.</p>}
      {value && some.length === 0 && <Empty title="Nobody consumes this queue here"><p>A worker of a client library does, or <code>POST {`/v1/${path(queue, "/receive")}`}</code>.</p></Empty>}
      {some.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Consumers">
          <table class="list tight">
            <thead>
              <tr>
                <th scope="col">User</th>
                {["Unsettled", "Credits", "Since"].map((name) => <th key={name} scope="col" class="n">{name}</th>)}
                <th scope="col">Client</th>
                {value!.node && <th scope="col">Server</th>}
              </tr>
            </thead>
            <tbody>
              {some.map((one) => (
                <tr key={`${one.node} ${one.connection ?? one.user}`}>
                  <th scope="row">{nameOf(one, one.node === value!.node)}</th>
                  <td class="n">{full(one.unsettled)}</td>
                  <td class="n">{full(one.credits)}</td>
                  <td class="n">{since(one.began)}</td>
                  <td class="client" title={one.client}>{one.connection ? (one.client ?? "–") : "HTTP, all clients"}</td>
                  {value!.node && <td>{one.node}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
    </>
  );
}

/** Only the server of a connection shows it. */
function nameOf({ user, connection }: Consumer, here: boolean) {
  const name = visible(user || connection || "HTTP clients");
  return here && connection ? <a href={href(["connections", connection])}>{name}</a> : name;
}
