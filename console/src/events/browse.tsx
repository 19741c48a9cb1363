import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { QueryItem } from "tidewire";
import { full } from "../format/numbers.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";
import { ViewChoice } from "../streams/detail.js";
import { Beside, positionOf } from "../streams/look.js";
import type { View } from "../streams/payload.js";
import { select } from "./builder.js";
import { pageSize, read } from "./data.js";
import { EventTable } from "./table.js";

/** What both ways of looking at events have. */
export interface Look {
  store: string;
  items: QueryItem[];
  view: View;
  look: (view: View) => void;
  opened: number | undefined;
  open: (position: number) => void;
  detail: ComponentChildren;
}

/** One page of events: before or after a position of the address, or the newest; as of a position, if the address has one. */
export function Browse({ store, items, view, look, opened, open, detail, turn }: Look & { turn: number }) {
  const { query } = place.value;
  const [after, before, asOf] = [positionOf(query.get("after")), positionOf(query.get("before")), positionOf(query.get("asof"))];
  const bound = asOf === undefined ? before : Math.min(before ?? Infinity, asOf + 1);
  const newest = after === undefined && before === undefined;
  const page = useLoad(async (signal) => {
    const events = await read(store, items, after === undefined ? { before: bound, backwards: true } : { after, before: bound }, signal);
    return after === undefined ? events : events.reverse();
  }, [store, items, after, bound]);
  const begun = useRef(false);
  useEffect(() => {
    if (begun.current && newest) page.again(); // something has come
    begun.current = true;
  }, [turn]);
  const events = page.value ?? [];
  const more = events.length === pageSize;
  const show = (next: { after?: number | undefined; before?: number | undefined }) => change({ after: undefined, before: undefined, open: undefined, ...next });
  // Backwards, a page that is not full is the last one; forwards, it is the newest.
  const atEnd = newest || !events.length || (after !== undefined && !more);
  const atStart = !events.length || after === 0 || (after === undefined && !more);
  return (
    <>
      <div class="bar">
        <div class="buttons" role="group" aria-label="Pages">
          <button type="button" onClick={() => show({})} aria-pressed={newest}>Newest</button>
          <button type="button" onClick={() => !atEnd && show({ after: events[0]!.position })} aria-disabled={atEnd}>Newer</button>
          <button type="button" onClick={() => !atStart && show({ before: events.at(-1)!.position })} aria-disabled={atStart}>Older</button>
          <button type="button" onClick={() => show({ after: 0 })} aria-pressed={after === 0}>Oldest</button>
        </div>
        <button type="button" onClick={() => change({ live: 1, after: undefined, before: undefined, asof: undefined, open: undefined })}>Follow live</button>
        <AsOf at={asOf} />
        <ViewChoice view={view} look={look} name="view" />
      </div>
      <Beside detail={detail}>
        {page.error !== undefined && <Trouble error={page.error} retry={page.again} title="The events could not be read" />}
        {page.value && !events.length && page.error === undefined && <Nothing filtered={items.length > 0 || asOf !== undefined || !newest} />}
        {events.length > 0 && <EventTable events={events} view={view} opened={opened} open={open} label={`Events ${full(events.at(-1)!.position)} to ${full(events[0]!.position)}`} />}
        {!page.value && page.error === undefined && <p class="soft">Reading.</p>}
      </Beside>
    </>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  if (!filtered) return <Empty title="There is no event yet"><p>Append one below, or with <code>tidewire events append</code>.</p></Empty>;
  const all = () => {
    change({ asof: undefined });
    select([]);
  };
  return <Empty title="No event here matches"><p><button type="button" onClick={all}>Show all events</button></p></Empty>;
}

/** Shows the events as they were when a position was the last one. */
function AsOf({ at }: { at: number | undefined }) {
  const [wrong, setWrong] = useState("");
  const submit = (event: Event & { currentTarget: HTMLFormElement }) => {
    event.preventDefault();
    const text = new FormData(event.currentTarget).get("asof") as string;
    const position = positionOf(text.replace(/[\s,]/g, ""));
    setWrong(text && position === undefined ? "A position is a whole number, 0 or more." : "");
    if (!text || position !== undefined) change({ asof: position, before: undefined, after: undefined, open: undefined });
  };
  return (
    <form class="bar" onSubmit={submit}>
      <label>As of position <input name="asof" inputMode="numeric" autocomplete="off" size={10} placeholder="now" defaultValue={at === undefined ? "" : String(at)} key={at} /></label>
      <button>Show</button>
      <p class="bad" role="alert">{wrong}</p>
    </form>
  );
}
