// A query that is followed.
import type { EventSubscription, QueryItem, StoredEvent } from "tidewire";
import type { Source } from "../parts/tail.js";
import { client } from "../session.js";
import { newest, remember, show, type Shown } from "./data.js";

/** What comes in a tenth of a second is one page. */
async function* pages(subscription: EventSubscription): AsyncGenerator<StoredEvent[]> {
  for (let next = subscription.next(); ; ) {
    const first = await next;
    if (first.done) return;
    const page = [first.value];
    const over = new Promise<void>((resolve) => setTimeout(resolve, 100));
    for (next = subscription.next(); page.length < 1000; next = subscription.next()) {
      const more = await Promise.race([next, over]);
      if (!more || more.done) break;
      page.push(more.value);
    }
    yield page;
  }
}

/** The events that match, after the newest one that there is. */
export const eventSource = (store: string, items: QueryItem[]): Source<Shown, StoredEvent> => ({
  open(after = 0) {
    const subscription = client().events(store).subscribe({ items }, { after, credits: 1000 });
    return {
      ready: subscription.ready, pages: () => pages(subscription), close: () => subscription.close(),
      get position() {
        return subscription.position;
      },
    };
  },
  show(event) {
    remember(store, [event]);
    return show(event);
  },
  head: () => newest(store, items),
  end: () => newest(store, items),
});
