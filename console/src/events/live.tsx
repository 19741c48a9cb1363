import { Follow } from "../parts/live.js";
import { Empty } from "../parts/notice.js";
import { Beside } from "../streams/look.js";
import type { Look } from "./browse.js";
import { eventSource } from "./source.js";
import { EventTable } from "./table.js";

/** The events that match, as they come. */
export function Live({ store, items, view, look, opened, open, detail }: Look) {
  return (
    <Follow source={() => eventSource(store, items)} by={JSON.stringify([store, items])} name="query" view={view} look={look} open={open}>
      {(events, open, trouble) => (
        <Beside detail={detail}>
          {trouble}
          {events.length === 0 && !trouble && <Empty title="Waiting for the next event that matches"><p>Append one below, or with <code>tidewire events append</code>.</p></Empty>}
          {events.length > 0 && <EventTable events={events} view={view} opened={opened} open={open} label="The newest events" />}
        </Beside>
      )}
    </Follow>
  );
}
