import { useRef, useState } from "preact/hooks";
import type { QueryItem } from "tidewire";
import { ask, type Failure } from "../api.js";
import { compact, parse } from "../format/json.js";
import { full } from "../format/numbers.js";
import { codeOf, messageOf } from "../parts/notice.js";
import { change, place } from "../router.js";
import { positionOf } from "../streams/look.js";
import { TagChips } from "./builder.js";
import { useTypes, type May } from "./data.js";

interface AppendOptions {
  store: string;
  items: QueryItem[];
  may: May;
  /** Looks for what is new. */
  again: () => void;
}

/** Appends an event, on the condition that is tested if that is wanted. */
export function Append({ store, items, may, again }: AppendOptions) {
  const form = useRef<HTMLFormElement>(null);
  const [tags, setTags] = useState<string[]>([]);
  const [prefix, search] = useState("");
  const [wrong, setWrong] = useState<unknown>();
  const [said, say] = useState("");
  const [busy, setBusy] = useState(false);
  const types = useTypes(store, prefix, may);
  const after = positionOf(place.value.query.get("test"));
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    const fields = new FormData(form.current!);
    const text = (name: string) => fields.get(name) as string;
    say("");
    setWrong(undefined);
    const data = parse(text("data"));
    if (text("data").trim() && !data) return setWrong('Data are JSON, such as {"seats": 3}.');
    const rest = JSON.stringify({ type: text("type"), ...(tags.length && { tags }), ...(text("id") && { id: text("id") }) });
    const condition = fields.has("if") && after !== undefined ? `,"condition":${JSON.stringify({ query: { items }, after })}` : "";
    setBusy(true);
    try {
      // The data go as they are typed: JSON.stringify would round large numbers.
      const body = `{"store":${JSON.stringify(store)},"events":[${data ? `${rest.slice(0, -1)},"data":${compact(data)}}` : rest}]${condition}}`;
      const { positions } = await ask<{ positions: number[] }>("events", { method: "POST", body });
      say(`Stored at position ${full(positions[0]!)}.`);
      again();
    } catch (error) {
      setWrong(error);
    }
    setBusy(false);
  };
  const conflict = (wrong as Failure | undefined)?.position;
  return (
    <details class="card publish">
      <summary><h2>Append an event</h2></summary>
      <form ref={form} onSubmit={submit}>
        <div class="bar">
          <label>Type <input name="type" list="append-types" spellcheck={false} autocomplete="off" onInput={(event) => search(event.currentTarget.value)} /></label>
          <datalist id="append-types">{types.map((type) => <option key={type} value={type} />)}</datalist>
          <label>Id <input name="id" spellcheck={false} autocomplete="off" placeholder="none" /></label>
        </div>
        <TagChips store={store} values={tags} set={setTags} label="Tags" />
        <label class="block">Data, JSON <textarea name="data" rows={4} spellcheck={false} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && void submit(event)} /></label>
        {after === undefined ? <p class="soft">To append on a condition, test one above.</p> : (
          <label class="check"><input type="checkbox" name="if" /> only if no event after position {full(after)} matches the query above</label>
        )}
        <p class="bar"><button class="main" aria-disabled={busy}>Append</button><span class="soft">or Ctrl+Enter</span></p>
        <p role="status" class="good">{said}</p>
        <p role="alert" class="bad">
          {wrong !== undefined && messageOf(wrong)}
          {codeOf(wrong) === "no_answer" && " It is not known whether the event is stored: look at the newest events before you append it again."}
          {conflict !== undefined && <> <button type="button" class="link" onClick={() => change({ open: conflict })}>Open event {full(conflict)}</button></>}
        </p>
      </form>
    </details>
  );
}
