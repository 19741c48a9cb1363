import { useRef, useState } from "preact/hooks";
import type { QueryItem } from "tidewire";
import { full } from "../format/numbers.js";
import { useLoad, type Loaded } from "../parts/load.js";
import { codeOf, messageOf } from "../parts/notice.js";
import { count, countOn, newest, type Counted } from "./data.js";

/** To count all events of a store that has more is left to the user: it reads all of them. */
const cheap = 1_000_000;

export interface Counting extends Loaded<Counted> {
  /** Counts what is not counted by itself. */
  start: () => void;
}

/** Counts the events that match, and those that come. It looks every two seconds what is new. */
export function useCount(store: string, items: QueryItem[], head: number | undefined): Counting {
  const key = JSON.stringify([store, items]);
  const [wanted, want] = useState("");
  const state = useRef<{ key: string; value: Counted } | undefined>(undefined);
  const counts = wanted === key || (items.length > 0 && items.every(({ tags }) => tags)) || (head !== undefined && head <= cheap);
  const loaded = useLoad(async (signal) => {
    let value = state.current?.key === key ? state.current.value : undefined;
    try {
      if (!value || (counts && !value.counts)) value = counts ? await count(store, items, signal) : { after: await newest(store, items, signal), turn: 0, more: false };
      else do value = await countOn(store, items, value, signal); while (value.more && value.turn % 10);
    } catch (error) {
      if (codeOf(error) === "history_lost") state.current = undefined;
      throw error;
    }
    state.current = { key, value };
    return value;
  }, [key, counts], 2000);
  return { ...loaded, start: () => want(key) };
}

/** How many events match. */
export function Count({ counted: { value, error, loading, start } }: { counted: Counting }) {
  if (error !== undefined && !value) return <p class="soft" role="status">{codeOf(error) === "forbidden" ? "Not counted." : `Not counted: ${messageOf(error)}`}</p>;
  if (!value) return <p class="soft" role="status">{loading ? "Counting" : ""}</p>;
  if (!value.counts) return <p class="bar"><button type="button" onClick={start}>Count the events that match</button><span class="soft">This reads all of them.</span></p>;
  const n = value.counts[0]!;
  return <p role="status"><strong>{full(n)}</strong> {n === 1 ? "event matches" : "events match"}{value.more && ", and more"} <span class="soft">up to position {full(value.after)}</span></p>;
}
