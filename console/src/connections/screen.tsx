import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { bytes, full, span } from "../format/numbers.js";
import { moment } from "../format/time.js";
import { Act } from "../parts/act.js";
import { useLoad } from "../parts/load.js";
import { Trouble } from "../parts/notice.js";
import { href } from "../router.js";
import { Payload } from "../streams/payload.js";
import { path, whole, type Right, type Whole } from "./data.js";
import { Explain } from "./explain.js";
import { since, waits } from "./list.js";

/** One connection. */
export function ConnectionScreen({ name }: { name: string }) {
  const { value: is, error, again } = useLoad((signal) => whole(name, signal), [name], 2000);
  return (
    <>
      <p class="path"><a href={href(["connections"])}>Connections</a></p>
      <h1 tabIndex={-1}>{is?.user || name}</h1>
      {error !== undefined && <Trouble error={error} retry={again} title={is ? "This is what it was: the connection has ended, or the server does not answer" : "There is no such connection"} />}
      {is && <Facts is={is} />}
      {is && error === undefined && <Disconnect is={is} again={again} />}
      {is && (
        <div class="pair">
          <Holds is={is} />
          {is.claims && <section class="card" aria-labelledby="claims"><h2 id="claims">{is.by === "token" ? "Claims of its token" : "Caller"}</h2><Payload payload={is.claims} view="json" /></section>}
        </div>
      )}
      {is?.by && <Rights rights={is.rights} asks={is.asks} />}
      {is && error === undefined && <Explain connection={name} />}
      {!is && error === undefined && <p class="soft">Asking the server.</p>}
    </>
  );
}

function Facts({ is }: { is: Whole }) {
  const facts: [string, ComponentChildren][] = [
    ["Connection", is.node ? `${is.connection}, of the server ${is.node}` : is.connection],
    ["User", is.by === undefined ? "not known: no token" : `${is.user || "nobody"}, in the role ${is.role}${is.key ? `, with the API key ${is.key}` : ""}`],
    ["Until", is.expires ? moment(is.expires) : "it has no end"],
    ["Client", `${is.client ?? "It does not say what it is"}, from ${is.address}, on ${is.endpoint}`],
    ["Open for", since(is.opened)],
    ["In", `${full(is.messages_in)} messages, ${bytes(is.bytes_in)}`],
    ["Out", `${full(is.messages_out)} messages, ${bytes(is.bytes_out)}`],
    ["Unsent", <>{bytes(is.unsent_bytes)}{waits(is) && <strong class="bad">. It has kept the server waiting for {span(is.waiting_ms)}</strong>}</>],
  ];
  return <table class="facts"><tbody>{facts.map(([name, value]) => <tr key={name}><th scope="row">{name}</th><td>{value}</td></tr>)}</tbody></table>;
}

function Disconnect({ is: { connection, user, by }, again }: { is: Whole; again: () => void }) {
  const [said, say] = useState("");
  const act = (at: string, what: string, body = {}) => async () => {
    await ask(at, { method: "POST", body });
    say(what);
    again();
  };
  const all = `users/${part(user ?? "")}/disconnect`;
  return (
    <>
      <div class="bar">
        <Act label="Disconnect" title="Disconnect this connection?" act={act(path(connection, "/disconnect"), "Disconnected.")}><p>Its client may connect again.</p></Act>
        {user && <Act label="Disconnect all of this user" title={`Disconnect all connections of ${user}?`} act={act(all, "All are disconnected.")}><p>On all servers. Its clients get new tokens, and may connect again.</p></Act>}
        {user && by === "token" && <Act label="Revoke the tokens of this user" title={`Revoke the tokens of ${user}?`} act={act(all, "The tokens are revoked.", { reconnect: false })}><p>All connections of the user end, on all servers. Its tokens until now are refused for ever. With a new token it can connect again.</p></Act>}
      </div>
      <p class="good" role="status">{said}</p>
    </>
  );
}

function Holds({ is }: { is: Whole }) {
  const parts: [string, ComponentChildren[]][] = [
    ["Subscriptions", is.subscriptions.map(({ subscription, stream, group, store }) => <>{stream ? <a href={href(["streams", stream])}>{stream}</a> : <>events of <a href={href(["events", store!])}>{store}</a></>}{group && `, as the group ${group}`}{subscription !== stream && `, named ${subscription}`}</>)],
    ["Consumes", is.consumers.map((queue) => <a href={href(["queues", queue])}>{queue}</a>)],
    ["Rooms", is.rooms],
  ];
  return (
    <section class="card" aria-labelledby="holds">
      <h2 id="holds">Open here</h2>
      {parts.every(([, all]) => !all.length) && <p class="soft">No subscription, no consumer and no room.</p>}
      {parts.map(([name, all]) => all.length > 0 && <div key={name}><h3>{name}</h3><ul>{all.map((one, i) => <li key={i}>{one}</li>)}</ul></div>)}
    </section>
  );
}

function Rights({ rights, asks }: { rights: Right[]; asks: boolean }) {
  return (
    <section class="card" aria-labelledby="rights">
      <h2 id="rights">Rights</h2>
      {!rights.length && <p>No rule grants it anything.</p>}
      {asks && <p class="soft">The SQL function on rights may grant more.</p>}
      {rights.length > 0 && <RuleTable rules={rights} bound />}
    </section>
  );
}

/** Rules, or the rights of a caller with the values that were put in. */
export function RuleTable({ rules, bound = false }: { rules: Right[]; bound?: boolean }) {
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Rules">
      <table class="list">
        <thead><tr>{bound && <th scope="col">Right</th>}<th scope="col">Rule</th><th scope="col">Of the role</th><th scope="col">Written in</th></tr></thead>
        <tbody>
          {rules.map(({ rule, bound: put, role, source }, i) => (
            <tr key={i}>
              {bound && <td>{put ? <code>{put}</code> : <span class="soft">nothing: the token lacks a value</span>}</td>}
              <td><code>{rule}</code></td><td>{role ?? "–"}</td><td>{source ?? "the token or key"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
