import { useEffect, useRef, useState } from "preact/hooks";
import { compact, loses, parse } from "../format/json.js";
import { full } from "../format/numbers.js";
import { messageOf } from "../parts/notice.js";
import { client } from "../session.js";
import type { Shown } from "./messages.js";
import { raw } from "./tail.js";

/** The headers of the form, or why they can't be sent. */
export function headersOf(text: string): { headers?: Record<string, unknown>; wrong?: string } {
  if (!text.trim()) return {};
  const node = parse(text);
  if (node?.kind !== "object") return { wrong: 'Headers are a JSON object, such as {"trace": "abc"}.' };
  if (loses(node)) return { wrong: "A browser would round a number of these headers: write it as a text, in quotes." };
  return { headers: JSON.parse(text) };
}

/** Publishes a message. `from` is one to begin with. */
export function Publish({ stream, from }: { stream: string; from: Shown | undefined }) {
  const box = useRef<HTMLDetailsElement>(null);
  const key = useRef<HTMLInputElement>(null);
  const headers = useRef<HTMLInputElement>(null);
  const payload = useRef<HTMLTextAreaElement>(null);
  const [wrong, setWrong] = useState("");
  const [said, say] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!from) return;
    key.current!.value = from.key ?? "";
    headers.current!.value = from.headers === undefined ? "" : compact(parse(from.headers)!);
    payload.current!.value = String(from.payload);
    box.current!.open = true;
    payload.current!.focus();
  }, [from]);
  const submit = async (event: Event) => {
    event.preventDefault();
    const { headers: checked, wrong: why } = headersOf(headers.current!.value);
    say("");
    setWrong(why ?? "");
    if (why || busy) return;
    setBusy(true);
    try {
      const { position } = await client().stream(stream, { codec: raw }).publish(payload.current!.value, {
        ...(key.current!.value && { key: key.current!.value }), ...(checked && { headers: checked }), timeout: 10_000,
      });
      say(`Stored at position ${full(position)}.`);
    } catch (error) {
      setWrong(messageOf(error));
    }
    setBusy(false);
  };
  return (
    <details class="card publish" ref={box}>
      <summary><h2>Publish a message</h2></summary>
      <form onSubmit={submit}>
        <div class="bar">
          <label>Key <input ref={key} maxLength={1024} spellcheck={false} autocomplete="off" placeholder="none" /></label>
          <label class="wide">Headers, a JSON object <input ref={headers} spellcheck={false} autocomplete="off" placeholder="none" /></label>
        </div>
        <label class="block">Payload <textarea ref={payload} rows={5} spellcheck={false} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && void submit(event)} /></label>
        <p class="bar"><button class="main" aria-disabled={busy}>Publish</button><span class="soft">or Ctrl+Enter</span></p>
        <p role="status" class="good">{said}</p>
        <p role="alert" class="bad">{wrong}</p>
      </form>
    </details>
  );
}
