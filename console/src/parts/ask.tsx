import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { messageOf } from "./notice.js";

interface AskOptions {
  title: string;
  /** What the button says that acts. */
  label: string;
  /** A name that has to be typed, if the act is large. */
  typed?: string | undefined;
  act: () => Promise<void>;
  close: () => void;
  children: ComponentChildren;
}

/** Asks before an act that cannot be taken back. It stays open if the act fails, and says why. */
export function Ask({ title, label, typed, act, close, children }: AskOptions) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [name, setName] = useState("");
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  useEffect(() => dialog.current!.showModal(), []);
  const ready = !busy && (typed === undefined || name === typed);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    setError(undefined);
    try {
      await act();
    } catch (why) {
      setError(why);
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby="ask" onCancel={(event) => { event.preventDefault(); close(); }}>
      <form onSubmit={submit}>
        <h2 id="ask">{title}</h2>
        {children}
        {typed !== undefined && (
          <label class="block">To go on, type the name <strong class="name">{typed}</strong>
            <input value={name} onInput={(event) => setName(event.currentTarget.value)} spellcheck={false} autocomplete="off" />
          </label>
        )}
        <p class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
        <p class="bar">
          <button type="button" onClick={close} autofocus={typed === undefined}>Cancel</button>
          <button class="main" aria-disabled={!ready}>{label}</button>
        </p>
      </form>
    </dialog>
  );
}
