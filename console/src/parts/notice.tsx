import type { ComponentChildren } from "preact";

/** There is nothing, and what to do about that. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Advice about errors, by their code. */
const advice: Record<string, string> = {
  no_answer: "The console goes on by itself when the server is back.",
  forbidden: "Ask an administrator for this right, or sign in with another token.",
  not_found: "It may have been dropped, or its name is another one.",
  unavailable: "PostgreSQL does not answer the server. The log of the server and tidewire doctor say more.",
  history_lost: "Show the newest messages.",
  overloaded: "Try again in some seconds.",
  rate_limited: "Try again in some seconds.",
  unauthenticated: "Sign in.",
  invalid_token: "Sign in again.",
  token_expired: "Sign in again.",
};

/** An error, with what to do, and a button that tries again. */
export function Trouble({ error, retry, title = "This did not work" }: { error: unknown; retry?: () => void; title?: string }) {
  const code = codeOf(error);
  return (
    <div class="trouble" role="alert">
      <h2>{title}</h2>
      <p>{messageOf(error)}</p>
      {advice[code] && <p>{advice[code]}</p>}
      {retry && <button type="button" onClick={retry}>Try again</button>}
      {code && <p class="soft">Code: <code>{code}</code></p>}
    </div>
  );
}

/** The code of an error, of the API or of the client. */
export const codeOf = (error: unknown): string => String((error as { code?: unknown } | undefined)?.code ?? "");

export function messageOf(error: unknown): string {
  const { verb, kind, object } = error as { verb?: string; kind?: string; object?: string };
  if (verb && kind) return `No rule grants you this. It needs the right “${verb} ${kind}:${object ?? "*"}”.`;
  return sentence(error instanceof Error ? error.message : String(error));
}

/** Messages of the server begin with a small letter and have no full stop. */
const sentence = (text: string) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
