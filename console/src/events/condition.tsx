import { useState } from "preact/hooks";
import type { QueryItem } from "tidewire";
import { visible } from "../format/bytes.js";
import { full } from "../format/numbers.js";
import { useLoad } from "../parts/load.js";
import { messageOf } from "../parts/notice.js";
import { change, place } from "../router.js";
import { positionOf } from "../streams/look.js";
import { read } from "./data.js";

interface ConditionOptions {
  store: string;
  items: QueryItem[];
  /** The last position that is known. */
  end: number;
}

/** Tests whether an append would be accepted on condition that no event after a position matches the query. */
export function Condition({ store, items, end }: ConditionOptions) {
  const test = positionOf(place.value.query.get("test"));
  const [wrong, setWrong] = useState("");
  const submit = (event: Event & { currentTarget: HTMLFormElement }) => {
    event.preventDefault();
    const text = new FormData(event.currentTarget).get("test") as string;
    const position = text ? positionOf(text.replace(/[\s,]/g, "")) : end;
    setWrong(position === undefined ? "A position is a whole number, 0 or more." : "");
    if (position !== undefined) change({ test: position });
  };
  return (
    <section class="card" aria-labelledby="condition">
      <h2 id="condition">Condition</h2>
      <p class="soft">An append with a condition is accepted only if no event after a position matches the query above. Test whether one would be accepted now.</p>
      <form class="bar" onSubmit={submit}>
        <label>No match after position <input name="test" inputMode="numeric" autocomplete="off" size={12} placeholder={full(end)} defaultValue={test === undefined ? "" : String(test)} key={test} /></label>
        <button class="main">Test</button>
        {test !== undefined && <button type="button" onClick={() => change({ test: undefined })}>End the test</button>}
      </form>
      <p class="bad" role="alert">{wrong}</p>
      {test !== undefined && <Verdict store={store} items={items} after={test} />}
    </section>
  );
}

/** Whether the condition holds now: it looks every two seconds. */
function Verdict({ store, items, after }: { store: string; items: QueryItem[]; after: number }) {
  const { value, error } = useLoad(async (signal) => ({ event: (await read(store, items, { after, limit: 1 }, signal))[0] }), [store, items, after], 2000);
  if (error !== undefined) return <p role="status" class="bad"><strong>It would not hold, or this is not known.</strong> {messageOf(error)}</p>;
  if (!value) return <p class="soft">Asking the server.</p>;
  const { event } = value;
  if (!event) return <p role="status" class="good"><strong>It would hold.</strong> No event after position {full(after)} matches.</p>;
  return (
    <p role="status">
      <strong class="bad">It would not hold.</strong> The first event that conflicts is <button type="button" class="link" onClick={() => change({ open: event.position })}>event {full(event.position)}</button>, {visible(event.type)}{event.tags.length > 0 && `, with the ${event.tags.length > 1 ? "tags" : "tag"} ${visible(event.tags.join(", "))}`}.
    </p>
  );
}
