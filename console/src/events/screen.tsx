import { useLoad } from "../parts/load.js";
import { Empty } from "../parts/notice.js";
import { change, href, place } from "../router.js";
import { useOpened } from "../queues/detail.js";
import { Append } from "./append.js";
import { Browse } from "./browse.js";
import { Builder } from "./builder.js";
import { Condition } from "./condition.js";
import { useCount } from "./count.js";
import { itemsOf, read, selecting, useMay, type May } from "./data.js";
import { Detail } from "./detail.js";
import { Live } from "./live.js";
import { Program } from "./program.js";
import type { QueryItem } from "tidewire";

/** How many of the newest events are read for the tags that are proposed. */
const sample = 100;

/** One event store. */
export function EventScreen({ name }: { name: string }) {
  const items = itemsOf(place.value.query.get("q"));
  return (
    <>
      <p class="path"><a href={href(["events"])}>Events</a></p>
      <h1 tabIndex={-1}>{name}</h1>
      {items ? <Store store={name} items={items} /> : (
        <Empty title="The query of this address cannot be read"><p><button type="button" onClick={() => change({ q: undefined })}>Show all events</button></p></Empty>
      )}
    </>
  );
}

function Store({ store, items }: { store: string; items: QueryItem[] }) {
  const query = selecting(items);
  const may = useMay(store, query[0]?.tags ?? []);
  const recent = useLoad(async (signal) => (may?.query ? read(store, [], { backwards: true, limit: sample }, signal) : undefined), [store, may?.query]);
  const head = recent.value && (recent.value[0]?.position ?? 0);
  const counted = useCount(store, query, head);
  const opened = useOpened();
  const live = place.value.query.has("live");
  const detail = opened.opened !== undefined && <Detail store={store} items={query} position={opened.opened} view={opened.view} look={opened.look} close={opened.close} />;
  const look = { store, items: query, ...opened, detail };
  const end = Math.max(head ?? 0, counted.value?.after ?? 0);
  return (
    <>
      <Builder store={store} items={items} may={may} counted={counted} query={query} />
      {live ? <Live {...look} /> : <Browse {...look} turn={counted.value?.turn ?? 0} />}
      <Condition store={store} items={query} end={end} />
      <Offer store={store} items={query} may={may} again={counted.again} />
      <Program store={store} items={query} />
    </>
  );
}

function Offer({ store, items, may, again }: { store: string; items: QueryItem[]; may: May | undefined; again: () => void }) {
  if (may?.append) return <Append store={store} items={items} may={may} again={again} />;
  return may ? <p class="soft">You cannot append here. No rule grants you this: it needs the right “append events:{store}”. If your right is limited to tags, put them into the query.</p> : null;
}

