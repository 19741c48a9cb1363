import { useRef, useState } from "preact/hooks";
import { failureOf } from "./api.js";
import { messageOf } from "./parts/notice.js";
import { token, use, wanted } from "./session.js";

/** Asks for a token, and tries it before it is used. */
export function SignIn() {
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    const given = field.current!.value.trim().replace(/^Bearer\s+/i, "");
    if (!given || busy) return field.current!.focus();
    setBusy(true);
    setError(undefined);
    try {
      await check(given);
      use(given);
    } catch (why) {
      setError(why);
      setBusy(false);
      field.current!.select();
    }
  };
  return (
    <form class="signin" onSubmit={submit} novalidate>
      <h1 tabIndex={-1}>Sign in</h1>
      <p>This server is in closed mode: it wants to know who you are. Paste a token or an API key.</p>
      {!error && wanted.value === "refused" && <p class="bad" role="alert">The server does not accept your token any more: it has ended, or was revoked.</p>}
      {!error && wanted.value === "used" && <p class="bad" role="alert">The key in the address was used already, or is over: it counts once, within a minute. Run <code>tidewire console</code> again.</p>}
      <label for="token">Token or API key</label>
      <input id="token" ref={field} type="password" autocomplete="off" spellcheck={false} autofocus aria-describedby="token-error" />
      <p id="token-error" class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
      <p><button class="main" aria-disabled={busy}>Sign in</button></p>
      <p class="soft">It stays in this tab until you close the tab or sign out, and goes to this server alone. On the machine of the database, <code>tidewire console</code> signs you in.</p>
    </form>
  );
}

/** Asks something that every caller may ask. */
async function check(given: string): Promise<void> {
  let response: Response;
  try {
    response = await fetch("/v1/streams", { headers: { Authorization: `Bearer ${given}` } });
  } catch {
    throw new Error("The server does not answer. Is it running, and is this machine connected to it?");
  }
  if (response.status === 401) throw new Error("The server does not accept this token. Is it complete, and has it not ended?");
  if (!response.ok) throw failureOf(response.status, await response.text());
}

/** Forgets the token. */
export function SignOut() {
  if (!token.value) return <button type="button" onClick={() => void (wanted.value = "missing")}>Sign in</button>;
  return <button type="button" onClick={() => use("")}>Sign out</button>;
}
