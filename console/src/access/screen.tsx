import { useRef, useState } from "preact/hooks";
import { ask } from "../api.js";
import { rules } from "../connections/data.js";
import { RuleTable } from "../connections/screen.js";
import { Act, chosen, Choices } from "../parts/act.js";
import { Command } from "../parts/copy.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { useRights } from "../rights.js";
import { change, href, place } from "../router.js";
import { closed } from "../session.js";
import { Keys } from "./keys.js";
import { Acts, Denials } from "./recent.js";

const shows = { keys: "API keys", rules: "Rules", denials: "Recent denials", acts: "Recent acts", tokens: "Revoke tokens" };

/** Who may use the server, and what was denied and done. */
export function AccessScreen() {
  const show = chosen(shows, place.value.query.get("show"));
  const open = closed.value === false;
  return (
    <>
      <h1 tabIndex={-1}>Access</h1>
      <Choices label="Show" names={shows} now={show} choose={(name) => change({ show: name })} />
      {closed.value !== undefined && {
        keys: () => (open ? <OpenMode /> : <Keys />), rules: () => (open ? <OpenMode /> : <Rules />), denials: () => <Denials />, acts: () => <Acts />, tokens: () => (open ? <OpenMode /> : <Tokens />),
      }[show]()}
    </>
  );
}

function OpenMode() {
  return (
    <Empty title="This server is in open mode">
      <p>Everybody who reaches it may do everything. There are no tokens, keys and rules. Start it so that it wants keys, and sign in with <code>tidewire console</code>:</p>
      <Command text="tidewire serve --auth-api-keys" />
    </Empty>
  );
}

function Rules() {
  const { value, error, again } = useLoad(rules, []);
  return (
    <>
      {error !== undefined && <Trouble error={error} retry={again} title="The rules could not be read" />}
      {value && !value.rules.length && <Empty title="There is no rule"><p>A token has only the rights that it brings itself. Add a rule with <code>--rule</code>.</p></Empty>}
      {value && value.rules.length > 0 && <RuleTable rules={value.rules} />}
      {value && <p class="soft">The role * is every caller with a token. {value.asks && "When no rule grants a right, the server asks an SQL function. "}<a href={href(["connections"], { verb: "read", kind: "stream" })}>Why is something denied?</a></p>}
    </>
  );
}

function Tokens() {
  const may = useRights({ revoke: "connections server:*" });
  const field = useRef<HTMLInputElement>(null);
  const [user, setUser] = useState("");
  const [said, say] = useState("");
  const revoke = async () => {
    await ask("tokens/revoke", { method: "POST", body: { user } });
    say(`The tokens of ${user} are revoked.`);
    setUser("");
    field.current!.focus();
  };
  if (!may || may.revoke) return may ? <Trouble error={may.revoke} title="You may not revoke tokens" /> : null;
  return (
    <section class="card" aria-labelledby="tokens">
      <h2 id="tokens">Revoke the tokens of a user</h2>
      <p>For a user who has left, or whose token was stolen. All tokens that the user has until now are refused, on all servers, and their connections end. With a new token the user can connect again.</p>
      <div class="bar">
        <label>User <input ref={field} value={user} maxLength={128} spellcheck={false} autocomplete="off" onInput={(event) => setUser(event.currentTarget.value)} /></label>
        {user && <Act label="Revoke" title={`Revoke the tokens of ${user}?`} act={revoke}><p>This cannot be taken back.</p></Act>}
      </div>
      <p class="good" role="status">{said}</p>
    </section>
  );
}
