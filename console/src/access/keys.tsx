import { useRef, useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { full } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { Act } from "../parts/act.js";
import { Copy } from "../parts/copy.js";
import { useLoad } from "../parts/load.js";
import { Empty, messageOf, Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";

interface Key {
  key: string;
  name: string;
  allow: string[];
  state: "active" | "expired" | "revoked";
  created: string;
  by?: string;
  expires?: string;
  last_used?: string;
}

interface Made {
  name: string;
  token: string;
}

/** How many keys are shown: the newest. */
const most = 500;
const day = 86_400;

/** The API keys, and a form that makes one. */
export function Keys() {
  const { value, error, again } = useLoad((signal) => ask<{ node?: string; since: string; keys: Key[] }>("keys", { signal }), [], 10_000);
  const [said, say] = useState("");
  const every = value?.keys ?? [];
  const all = place.value.query.has("ended");
  const active = every.filter(({ state }) => state === "active");
  const keys = all ? every : active;
  const ended = every.length - active.length;
  const revoke = ({ key, name }: Key) => async () => {
    await ask(`keys/${part(key)}/revoke`, { method: "POST" });
    say(`The key ${key} of ${name} is revoked.`);
    again();
  };
  return (
    <>
      {error !== undefined && <Trouble error={error} retry={again} title="The API keys could not be listed" />}
      <p class="good" role="status">{said}</p>
      {value && !keys.length && <Empty title={ended ? "No API key is active" : "There is no API key yet"}><p>A program of your own needs one. Make it below.</p></Empty>}
      {keys.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="API keys">
          <table class="list">
            <thead><tr>{["Name", "Id", "State", "Rights", "Made", "Ends", "Last used"].map((name) => <th key={name} scope="col">{name}</th>)}<td /></tr></thead>
            <tbody>
              {keys.slice(0, most).map((is) => (
                <tr key={is.key}>
                  <th scope="row">{is.name}</th>
                  <td><code>{is.key}</code></td>
                  <td>{is.state === "active" ? <span class="good">active</span> : is.state}</td>
                  <td>{is.allow.map((rule) => <div key={rule}><code>{rule}</code></div>)}</td>
                  <td><time>{minute(is.created)}</time>{is.by && <> by {is.by}</>}</td>
                  <td>{is.expires ? <time>{minute(is.expires)}</time> : "never"}</td>
                  <td>{is.last_used ? <time>{minute(is.last_used)}</time> : "–"}</td>
                  <td>{is.state === "active" && <Act label="Revoke" title={`Revoke the key ${is.key} of ${is.name}?`} act={revoke(is)}><p>Programs that use it are refused and disconnected, on all servers. This cannot be taken back.</p></Act>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {ended > 0 && <p><button type="button" aria-pressed={all} onClick={() => change({ ended: all ? undefined : 1 }, { replace: true })}>Show ended keys ({full(ended)})</button></p>}
      {value && <p class="soft">{keys.length > most && `The newest ${full(most)} of ${full(keys.length)}. `}The last use is what {value.node ? `the server ${value.node}` : "this server"} has seen since {minute(value.since)}.</p>}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
      {value && <Create again={again} />}
    </>
  );
}

/** Makes a key, and shows it once. */
function Create({ again }: { again: () => void }) {
  const form = useRef<HTMLFormElement>(null);
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const [made, setMade] = useState<Made>();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    const field = (name: string) => form.current!.elements.namedItem(name) as HTMLInputElement;
    const days = field("days").value.trim();
    const allow = field("allow").value.split("\n").map((line) => line.trim()).filter(Boolean);
    setMade(undefined);
    setError(undefined);
    if (days && !(Number(days) > 0 && Number(days) <= 36_500)) return setError("The days are a number up to 36,500, or nothing.");
    setBusy(true);
    try {
      const name = field("name").value;
      const { token } = await ask<Made>("keys", { method: "POST", body: { name, allow, ...(days && { expires_in: Math.ceil(Number(days) * day) }) } });
      setMade({ name, token });
      form.current!.reset();
      again();
    } catch (why) {
      setError(why);
    }
    setBusy(false);
  };
  return (
    <section class="card publish" aria-labelledby="create">
      <h2 id="create">Make an API key</h2>
      <form ref={form} onSubmit={submit}>
        <div class="bar">
          <label>Name <input name="name" maxLength={124} spellcheck={false} autocomplete="off" /></label>
          <label>Ends after days <input name="days" inputMode="numeric" placeholder="never" autocomplete="off" size={6} /></label>
        </div>
        <label class="block">Rights, one in each line <textarea name="allow" rows={3} spellcheck={false} placeholder={"publish stream:orders\nconsume queue:mails"} /></label>
        <p class="soft">The key is the user <code>key:NAME</code>. It has these rights alone, and none that you do not have.</p>
        <p class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
        <p><button class="main" aria-disabled={busy}>Make the key</button></p>
      </form>
      {made && (
        <div role="status" class="answer">
          <p><strong>The key of {made.name}. Store it now: it is not shown again.</strong></p>
          <div class="command"><pre tabIndex={0}>{made.token}</pre><Copy text={made.token} of="the key" /></div>
          <p><button type="button" onClick={() => setMade(undefined)}>I have stored it</button></p>
        </div>
      )}
    </section>
  );
}
