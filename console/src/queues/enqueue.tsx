import { useEffect, useRef, useState } from "preact/hooks";
import { compact, parse } from "../format/json.js";
import { full } from "../format/numbers.js";
import { messageOf } from "../parts/notice.js";
import { client } from "../session.js";
import { headersOf } from "../streams/publish.js";
import { raw } from "../streams/tail.js";
import { replace, type Letter, type Options } from "./data.js";

/** A number of a field, undefined if it is empty, or why it is none. */
export function numberOf(text: string, name: string, most: number, step = 1): { n?: number; wrong?: string } {
  if (!text.trim()) return {};
  const n = Number(text);
  if (Number.isFinite(n) && n >= 0 && n <= most && (step !== 1 || Number.isInteger(n))) return { n };
  return { wrong: `${name} is a ${step === 1 ? "whole " : ""}number from 0 to ${full(most)}.` };
}

const day = 86_400;

interface EnqueueOptions {
  queue: string;
  options: Options | undefined;
  /** A dead letter in whose place the message goes. */
  instead?: Letter;
  done?: (replaced: boolean) => void;
}

/** Enqueues a message. */
export function Enqueue({ queue, options, instead, done }: EnqueueOptions) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => { if (instead) form.current!.querySelector("textarea")!.focus(); }, []);
  const [wrong, setWrong] = useState("");
  const [said, say] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const field = (name: string) => (form.current!.elements.namedItem(name) as HTMLInputElement | null)?.value ?? "";
    const { headers, wrong: noHeaders } = headersOf(field("headers"));
    const delay = numberOf(field("delay"), "The delay", day, 0.001);
    const priority = numberOf(field("priority"), "The priority", (options?.priorities ?? 10) - 1);
    const unique = numberOf(field("unique_s"), "The time of a unique key", 366 * day, 1);
    const why = noHeaders ?? delay.wrong ?? priority.wrong ?? unique.wrong ?? (field("unique_key") && !unique.n ? "A unique key holds for 1 second or more." : undefined);
    say("");
    setWrong(why ?? "");
    if (why || busy) return;
    setBusy(true);
    try {
      if (instead) {
        await replace(queue, instead.position, {
          payload: field("payload"), ...(field("key") && { key: field("key") }), ...(headers && { headers }),
          ...(delay.n && { delay_ms: Math.round(delay.n * 1000) }), ...(priority.n !== undefined && { priority: priority.n }),
        });
        return done?.(true);
      }
      const { position, duplicate } = await client().queue(queue, { codec: raw }).enqueue(field("payload"), {
        timeout: 10_000, ...(field("key") && { key: field("key") }), ...(headers && { headers }),
        ...(delay.n && { delay: Math.round(delay.n * 1000) }), ...(priority.n !== undefined && { priority: priority.n }),
        ...(field("unique_key") && { uniqueKey: field("unique_key"), uniqueFor: unique.n! * 1000 }),
      });
      say(duplicate ? `Not stored: the message at position ${full(position)} has this unique key.` : `Stored at position ${full(position)}${delay.n ? ", delayed" : ""}.`);
    } catch (error) {
      setWrong(messageOf(error));
    }
    setBusy(false);
  };
  return (
    <details class="card publish" open={instead !== undefined}>
      <summary><h2>{instead ? `Edit message ${full(instead.position)}` : "Enqueue a message"}</h2></summary>
      <form ref={form} onSubmit={submit}>
        {instead && <p class="soft">The dead letter is removed and this message is enqueued, both or neither. It gets a new position, and its attempts count from 1 on.</p>}
        <div class="bar">
          <label>Key <input name="key" defaultValue={instead?.key} maxLength={1024} spellcheck={false} autocomplete="off" placeholder="none" /></label>
          <label>Delay in seconds <input name="delay" inputMode="decimal" autocomplete="off" placeholder="0" size={8} /></label>
          {(!options || options.priorities !== undefined) && <label>Priority <input name="priority" inputMode="numeric" autocomplete="off" placeholder="0" size={3} /></label>}
          <label class="wide">Headers, a JSON object <input name="headers" defaultValue={instead?.headers && compact(parse(instead.headers)!)} spellcheck={false} autocomplete="off" placeholder="none" /></label>
          {!instead && <label>Unique key <input name="unique_key" maxLength={1024} spellcheck={false} autocomplete="off" placeholder="none" /></label>}
          {!instead && <label>for seconds <input name="unique_s" inputMode="numeric" autocomplete="off" size={6} /></label>}
        </div>
        <label class="block">Payload <textarea name="payload" defaultValue={instead?.payload as string | undefined} rows={5} spellcheck={false} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && void submit(event)} /></label>
        <p class="bar"><button class="main" aria-disabled={busy}>{instead ? "Replace" : "Enqueue"}</button>{instead && <button type="button" onClick={() => done?.(false)}>Cancel</button>}<span class="soft">or Ctrl+Enter</span></p>
        <p role="status" class="good">{said}</p>
        <p role="alert" class="bad">{wrong}</p>
      </form>
    </details>
  );
}
