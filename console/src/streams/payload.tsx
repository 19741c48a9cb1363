import { bytesOf, hexLines, preview, visible } from "../format/bytes.js";
import { layOut, parse } from "../format/json.js";

export const views = ["json", "text", "hex"] as const;
export type View = (typeof views)[number];

/** How much of a payload is shown: more would make the page slow. */
const most = 64 << 10;

/** A payload as JSON, text or bytes. If it is no JSON, it is shown as text, and if it is no text, as bytes. */
export function Payload({ payload, view }: { payload: string | Uint8Array; view: View }) {
  const whole = payload.length;
  const part = typeof payload === "string" ? payload.slice(0, most) : payload.subarray(0, most);
  const note = whole > most ? <p class="soft">These are the first 64 Ki of {whole.toLocaleString("en")}. Copy has all.</p> : null;
  if (!whole) return <p class="soft">The payload is empty.</p>;
  if (view === "hex" || typeof part !== "string") {
    return (
      <>
        {view !== "hex" && <p class="soft">The payload is not UTF-8, so these are its bytes.</p>}
        <pre class="payload hex" tabIndex={0}>{hexLines(bytesOf(part).subarray(0, most))}</pre>
        {note}
      </>
    );
  }
  const node = view === "json" && whole <= most ? parse(part) : undefined;
  return (
    <>
      {view === "json" && !node && whole <= most && <p class="soft">The payload is no JSON, so this is its text.</p>}
      <pre class="payload" tabIndex={0}>{node ? layOut(node).map(({ kind, text }, i) => (kind === "mark" ? text : <span key={i} class={kind}>{text}</span>)) : part}</pre>
      {note}
    </>
  );
}

/** The beginning of a payload in a table. */
export function Preview({ payload, view, find }: { payload: string | Uint8Array; view: View; find?: string | undefined }) {
  const hit = find && typeof payload === "string" ? payload.toLowerCase().indexOf(find.toLowerCase()) : -1;
  if (hit >= 0 && view !== "hex") return <Marked payload={payload as string} hit={hit} size={find!.length} />;
  if (payload.length === 0) return <span class="soft">empty</span>;
  if (view === "hex") return <>{preview(bytesOf(typeof payload === "string" ? payload.slice(0, 100) : payload))}</>;
  if (typeof payload !== "string") return <><span class="tag">bytes</span> {preview(payload)}</>;
  return <>{preview(payload)}</>;
}

/** The surroundings of a text that was found. */
function Marked({ payload, hit, size }: { payload: string; hit: number; size: number }) {
  const from = hit > 60 ? hit - 30 : 0;
  return <>{from > 0 && "… "}{visible(payload.slice(from, hit))}<mark>{visible(payload.slice(hit, hit + size))}</mark>{preview(payload.slice(hit + size))}</>;
}
