import { useRef, useState } from "preact/hooks";
import { full } from "../format/numbers.js";
import { messageOf } from "../parts/notice.js";
import { client } from "../session.js";
import { headersOf } from "../streams/publish.js";
import { raw } from "../streams/tail.js";
import type { Options } from "./data.js";

/** A number of a field, undefined if it is empty, or why it is none. */
export function numberOf(text: string, name: string, most: number, step = 1): { n?: number; wrong?: string } {
  if (!text.trim()) return {};
  const n = Number(text);
  if (Number.isFinite(n) && n >= 0 && n <= most && (step !== 1 || Number.isInteger(n))) return { n };
  return { wrong: `${name} is a ${step === 1 ? "whole " : ""}number from 0 to ${full(most)}.` };
}

const day = 86_400;

/** Enqueues a message. */
export function Enqueue({ queue, options }: { queue: string; options: Options | undefined }) {
  const form = useRef<HTMLFormElement>(null);
  const [wrong, setWrong] = useState("");
  const [said, say] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const field = (name: string) => (form.current!.elements.namedItem(name) as HTMLInputElement | null)?.value ?? "";
    const { headers, wrong: noHeaders } = headersOf(field("headers"));
    const delay = numberOf(field("delay"), "The delay", day, 0.001);
    const priority = numberOf(field("priority"), "The priority", (options?.priorities ?? 10) - 1);
    const why = noHeaders ?? delay.wrong ?? priority.wrong;
    say("");
    setWrong(why ?? "");
    if (why || busy) return;
    setBusy(true);
    try {
      const { position } = await client().queue(queue, { codec: raw }).enqueue(field("payload"), {
        timeout: 10_000, ...(field("key") && { key: field("key") }), ...(headers && { headers }),
        ...(delay.n && { delay: Math.round(delay.n * 1000) }), ...(priority.n !== undefined && { priority: priority.n }),
      });
      say(`Stored at position ${full(position)}${delay.n ? ", delayed" : ""}.`);
    } catch (error) {
      setWrong(messageOf(error));
    }
    setBusy(false);
  };
  return (
    <details class="card publish">
      <summary><h2>Enqueue a message</h2></summary>
      <form ref={form} onSubmit={submit}>
        <div class="bar">
          <label>Key <input name="key" maxLength={1024} spellcheck={false} autocomplete="off" placeholder="none" /></label>
          <label>Delay in seconds <input name="delay" inputMode="decimal" autocomplete="off" placeholder="0" size={8} /></label>
          {(!options || options.priorities !== undefined) && <label>Priority <input name="priority" inputMode="numeric" autocomplete="off" placeholder="0" size={3} /></label>}
          <label class="wide">Headers, a JSON object <input name="headers" spellcheck={false} autocomplete="off" placeholder="none" /></label>
        </div>
        <label class="block">Payload <textarea name="payload" rows={5} spellcheck={false} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && void submit(event)} /></label>
        <p class="bar"><button class="main" aria-disabled={busy}>Enqueue</button><span class="soft">or Ctrl+Enter</span></p>
        <p role="status" class="good">{said}</p>
        <p role="alert" class="bad">{wrong}</p>
      </form>
    </details>
  );
}
