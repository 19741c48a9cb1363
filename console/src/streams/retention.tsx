import { useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { bytes, span } from "../format/numbers.js";
import { Ask } from "../parts/ask.js";
import { useLoad } from "../parts/load.js";
import { codeOf, messageOf } from "../parts/notice.js";
import { href } from "../router.js";
import { holders } from "./holders.js";
import type { Info } from "./messages.js";

export interface Retention {
  max_age_ms: number;
  max_bytes: number;
  consumed: boolean;
}

/** Says in words what a stream keeps. */
export function keeps({ max_age_ms, max_bytes, consumed }: Retention): string {
  const bounds = [...(max_age_ms ? [span(max_age_ms)] : []), ...(max_bytes ? [bytes(max_bytes)] : [])].join(" and ");
  if (!bounds) return consumed ? "what a group has not read" : "everything";
  return consumed ? `${bounds}, and what a group has not read` : bounds;
}

/** Whether a stream may lose messages by a change of what it keeps. */
export function loses(before: Retention, after: Retention): boolean {
  const tighter = (old: number, now: number) => now > 0 && (!old || now < old);
  const bound = after.max_age_ms + after.max_bytes > 0;
  return tighter(before.max_age_ms, after.max_age_ms) || tighter(before.max_bytes, after.max_bytes)
    || (bound ? before.consumed && !after.consumed : after.consumed && !(before.consumed && before.max_age_ms + before.max_bytes === 0));
}

/** Shows what the stream keeps; an administrator changes it. A queue's stream has no retention of its own. */
export function Retained({ is, acts }: { is: Info; acts: boolean }) {
  const path = `streams/${part(is.stream)}/retention`;
  const { value, error, again } = useLoad((signal) => ask<Retention>(path, { signal }), [is.stream]);
  const [asked, askFor] = useState(false);
  if (error !== undefined) return codeOf(error) === "queue_stream" ? <ForQueue stream={is.stream} /> : <span class="bad" role="alert">not known: {messageOf(error)}</span>;
  return (
    <>
      {value ? keeps(value) : "–"}
      {value && acts && <> <button type="button" class="link" onClick={() => askFor(true)}>Change …</button></>}
      {value && asked && <Change is={is} before={value} path={path} close={() => askFor(false)} again={again} />}
    </>
  );
}

/** What the stream of a queue keeps. The list of streams shows whether the queue of this name has it. */
function ForQueue({ stream }: { stream: string }) {
  const queue = useLoad((signal) => holders([stream, `${stream}/0`], signal), [stream]).value?.get(stream);
  return queue === undefined ? <>what its queue needs</> : <>what <a href={href(["queues", queue])}>queue {queue}</a> needs</>;
}

const ages = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 };
const sizes = { MiB: 1 << 20, GiB: 2 ** 30 };

/** The largest unit in which a value is a whole number. */
const unitOf = (value: number, units: Record<string, number>) => Object.keys(units).findLast((unit) => value && value % units[unit]! === 0) ?? Object.keys(units)[0]!;

/** A field for a limit: empty is none. */
function Limit({ label, value, units, set }: { label: string; value: number; units: Record<string, number>; set: (value: number) => void }) {
  const [unit, setUnit] = useState(unitOf(value, units));
  const [typed, setTyped] = useState(value ? String(value / units[unit]!) : "");
  const take = (text: string, of: string) => {
    setTyped(text);
    setUnit(of);
    set(text.trim() ? Math.round(Number(text) * units[of]!) : 0);
  };
  return (
    <p class="bar">
      <label>{label} <input value={typed} size={8} inputMode="decimal" autocomplete="off" placeholder="no limit" onInput={(event) => take(event.currentTarget.value, unit)} /></label>
      <select aria-label={`Unit of: ${label}`} value={unit} onChange={(event) => take(typed, event.currentTarget.value)}>{Object.keys(units).map((name) => <option key={name}>{name}</option>)}</select>
    </p>
  );
}

function Change({ is, before, path, close, again }: { is: Info; before: Retention; path: string; close: () => void; again: () => void }) {
  const [after, set] = useState(before);
  const wrong = [after.max_age_ms, after.max_bytes].some((n) => !Number.isSafeInteger(n) || n < 0);
  const lost = !wrong && loses(before, after);
  const act = async () => {
    if (wrong) throw new Error("A limit is a number, or empty.");
    await ask(path, { method: "PUT", body: after });
    close();
    again();
  };
  return (
    <Ask title={`What ${is.stream} keeps`} label="Change" typed={lost && (is.partitions || is.head > 1000) ? is.stream : undefined} close={close} act={act}>
      <Limit label="Not older than" value={before.max_age_ms} units={ages} set={(max_age_ms) => set((now) => ({ ...now, max_age_ms }))} />
      <Limit label="Not larger than" value={before.max_bytes} units={sizes} set={(max_bytes) => set((now) => ({ ...now, max_bytes }))} />
      <p><label><input type="checkbox" checked={after.consumed} onChange={(event) => set({ ...after, consumed: event.currentTarget.checked })} /> keep what a group has not read</label></p>
      <p role="status">{lost ? <strong>Messages may be removed for ever, within seconds.</strong> : !wrong && `It keeps ${keeps(after)}.`}</p>
    </Ask>
  );
}
