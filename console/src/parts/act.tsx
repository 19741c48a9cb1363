import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Ask } from "./ask.js";

/** A button for an act that is asked about first. */
export function Act({ label, title, act, children }: { label: string; title: string; act: () => Promise<unknown>; children: ComponentChildren }) {
  const [asked, ask] = useState(false);
  const close = () => ask(false);
  return (
    <>
      <button type="button" onClick={() => ask(true)}>{label}</button>
      {asked && <Ask title={title} label={label} close={close} act={async () => { await act(); close(); }}>{children}</Ask>}
    </>
  );
}

/** Choices of what a view shows, in its address. The first one is what it shows without one. */
export function Choices<Name extends string>({ label, names, now, choose }: { label: string; names: Record<Name, string>; now: Name; choose: (name: Name) => void }) {
  return (
    <div class="buttons" role="group" aria-label={label}>
      {(Object.keys(names) as Name[]).map((name) => <button key={name} type="button" aria-pressed={name === now} onClick={() => choose(name)}>{names[name]}</button>)}
    </div>
  );
}

/** The one of the names that an address has, or the first. */
export const chosen = <Name extends string>(names: Record<Name, string>, text: string | null): Name =>
  text !== null && Object.hasOwn(names, text) ? (text as Name) : (Object.keys(names)[0] as Name);
