import type { QueryItem } from "tidewire";
import { base64, bytesOf, visible } from "../format/bytes.js";
import { bytes, full } from "../format/numbers.js";
import { moment } from "../format/time.js";
import { Copy } from "../parts/copy.js";
import { DetailCard } from "../parts/detail.js";
import { useLoad } from "../parts/load.js";
import { codeOf, Empty, Trouble } from "../parts/notice.js";
import { change, href } from "../router.js";
import { ViewChoice } from "../streams/detail.js";
import { Payload, type View } from "../streams/payload.js";
import { read, type Shown } from "./data.js";

interface DetailOptions {
  store: string;
  items: QueryItem[];
  position: number;
  view: View;
  look: (view: View) => void;
  close: () => void;
}

/** One event, with links to those that share its tags and its type. */
export function Detail({ store, items, position, view, look, close }: DetailOptions) {
  const { value, error, loading, again } = useLoad(async (signal) => {
    try {
      return { event: position ? (await read(store, items, { after: position - 1, before: position + 1, limit: 1 }, signal))[0] : undefined };
    } catch (why) {
      if (codeOf(why) === "history_lost") return { event: undefined }; // it is after the end
      throw why;
    }
  }, [store, items, position]);
  return (
    <DetailCard title={`Event ${full(position)}`} what="event" close={close}>
      {error !== undefined && <Trouble error={error} retry={again} title="The event could not be read" />}
      {value && !value.event && <Empty title="No event at this position matches the query"><p>Positions have gaps.</p></Empty>}
      {value?.event && <Content store={store} event={value.event} view={view} look={look} />}
      {!value && loading && <p class="soft">Reading.</p>}
    </DetailCard>
  );
}

function Content({ store, event: e, view, look }: Pick<DetailOptions, "store" | "view" | "look"> & { event: Shown }) {
  const all = (item: QueryItem) => href(["events", store], { q: JSON.stringify([item]), open: e.position });
  return (
    <>
      <table class="facts">
        <tbody>
          <tr><th scope="row">Type</th><td><a href={all({ types: [e.type] })} title="All events of this type">{visible(e.type)}</a></td></tr>
          <tr>
            <th scope="row">Tags</th>
            <td>{e.tags.length ? <ul>{e.tags.map((tag) => <li key={tag}><a href={all({ tags: [tag] })} title="All events that share this tag">{visible(tag)}</a></li>)}</ul> : "none"}</td>
          </tr>
          <tr><th scope="row">Time</th><td><time dateTime={e.time}>{moment(e.time)}</time></td></tr>
          {e.id !== undefined && <tr><th scope="row">Id</th><td>{visible(e.id)}</td></tr>}
          <tr><th scope="row">Size</th><td>{bytes(bytesOf(e.payload).length)}</td></tr>
        </tbody>
      </table>
      <p class="soft">A type or a tag leads to all events that share it.</p>
      <div class="head">
        <h3>Data</h3>
        <ViewChoice view={view} look={look} name="detail-view" />
      </div>
      <Payload payload={e.payload} view={view} />
      <p class="actions">
        <Copy label="Copy data" text={() => (typeof e.payload === "string" ? e.payload : base64(e.payload))} />
        <button type="button" onClick={() => change({ asof: e.position, before: undefined, after: undefined, live: undefined })}>As of this position</button>
        <button type="button" onClick={() => change({ test: e.position })}>Test a condition after it</button>
      </p>
    </>
  );
}
