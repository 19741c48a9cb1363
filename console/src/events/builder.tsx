import { useId, useRef, useState } from "preact/hooks";
import type { QueryItem } from "tidewire";
import { visible } from "../format/bytes.js";
import { full } from "../format/numbers.js";
import { change } from "../router.js";
import { Count, type Counting } from "./count.js";
import { filled, seen, useTypes, type May } from "./data.js";

/** Shows the events of other items. */
export const select = (items: QueryItem[]) => change({ q: items.length ? JSON.stringify(items) : undefined, before: undefined, after: undefined, open: undefined });

interface BuilderOptions {
  store: string;
  /** The items of the address, of which some may be empty, and those that select something. */
  items: QueryItem[];
  query: QueryItem[];
  may: May | undefined;
  counted: Counting;
}

/** Makes the query, item by item. */
export function Builder({ store, items, query, may, counted }: BuilderOptions) {
  const all = items.length ? items : [{}];
  const counts = counted.value?.counts;
  const set = (i: number, item: QueryItem) => select(all.map((one, j) => (i === j ? item : one)));
  return (
    <section class="card" aria-labelledby="query">
      <h2 id="query">Query</h2>
      <p class="soft">An event matches an item if it has one of its types, and all of its tags. The query is for the events that match one of the items, or for all events if there is none.</p>
      {all.map((item, i) => (
        <fieldset key={i} class="item">
          <legend>{i ? "or item" : "Item"} {i + 1}{query.length > 1 && counts && query.includes(item) && <span class="soft">: {full(counts[query.indexOf(item) + 1] ?? 0)} match</span>}</legend>
          <TypeChips store={store} may={may} values={item.types ?? []} set={(types) => set(i, filled(types, item.tags))} />
          <TagChips store={store} values={item.tags ?? []} set={(tags) => set(i, filled(item.types, tags))} />
          {all.length > 1 && <button type="button" onClick={() => select(all.filter((_, j) => i !== j))}>Remove item {i + 1}</button>}
        </fieldset>
      ))}
      <div class="bar">
        <button type="button" aria-disabled={query.length < all.length} onClick={() => query.length === all.length && select([...all, {}])}>Or another item</button>
        {items.length > 0 && <button type="button" onClick={() => select([])}>Show all events</button>}
        <Count counted={counted} />
      </div>
    </section>
  );
}

interface ChipOptions {
  store: string;
  values: readonly string[];
  set: (values: string[]) => void;
}

/** Chooses types. Those that there are, are proposed. */
function TypeChips({ store, may, ...options }: ChipOptions & { may: May | undefined }) {
  const [prefix, search] = useState("");
  return <Chips {...options} label="Types, one of" noun="type" proposed={useTypes(store, prefix, may)} search={search} />;
}

/** Chooses tags. Those of events that the page has read are proposed. */
export const TagChips = ({ store, label = "Tags, all of", ...options }: ChipOptions & { label?: string }) => <Chips {...options} label={label} noun="tag" proposed={seen.value.store === store ? seen.value.tags : []} />;

interface ChipsOptions extends Omit<ChipOptions, "store"> {
  label: string;
  noun: string;
  proposed: readonly string[];
  search?: (text: string) => void;
}

/** Texts, each of which a button removes, and a field that adds one. */
function Chips({ label, noun, values, set, proposed, search }: ChipsOptions) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const add = () => {
    const text = input.current!.value;
    input.current!.value = "";
    search?.("");
    if (text && !values.includes(text)) set([...values, text]);
  };
  const remove = (text: string) => {
    input.current!.focus();
    set(values.filter((one) => one !== text));
  };
  return (
    <div class="bar chips">
      <label>{label} <input
        ref={input} list={id} spellcheck={false} autocomplete="off" size={18} placeholder={`a ${noun}, then Enter`}
        onInput={(event) => search?.(event.currentTarget.value)} onChange={add} onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), add())}
      /></label>
      {values.map((text) => <button type="button" key={text} class="chip" aria-label={`Remove the ${noun} ${text}`} onClick={() => remove(text)}>{visible(text)} <span aria-hidden="true">×</span></button>)}
      <datalist id={id}>{proposed.filter((text) => !values.includes(text)).map((text) => <option key={text} value={text} />)}</datalist>
    </div>
  );
}
