import { useRef, useState } from "preact/hooks";
import { token } from "../session.js";
import type { Wire } from "./wire.js";

/** Connects with a token of the user's choice. */
export function Connect({ wire }: { wire: Wire }) {
  const field = useRef<HTMLInputElement>(null);
  const [own, setOwn] = useState(true);
  const mine = token.value && own;
  const state = wire.state.value;
  const closed = state.name === "closed";
  const submit = (event: Event) => {
    event.preventDefault();
    if (closed) wire.connect(mine ? token.value : field.current!.value.trim().replace(/^Bearer\s+/i, ""));
    else wire.close();
  };
  return (
    <section class="card" aria-labelledby="connection">
      <h2 id="connection">Connection</h2>
      <form class="bar" onSubmit={submit}>
        {token.value && <label class="check"><input type="checkbox" checked={own} disabled={!closed} onChange={(event) => setOwn(event.currentTarget.checked)} /> with the token with which I am signed in</label>}
        {!mine && <label class="wide">Token or API key <input ref={field} type="password" autocomplete="off" spellcheck={false} disabled={!closed} placeholder="none" /></label>}
        <button class={closed ? "main" : ""}>{closed ? "Connect" : "Disconnect"}</button>
      </form>
      <p class="soft">The token goes in the first frame. It is kept in the memory of this page alone, until you leave it; the log does not show it.</p>
      <p role="status">{state.name === "closed" ? state.why || "Not connected." : state.name === "open" ? "Connected." : "Connecting."}</p>
    </section>
  );
}
