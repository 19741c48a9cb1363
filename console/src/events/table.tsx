import { visible } from "../format/bytes.js";
import { full } from "../format/numbers.js";
import { moment } from "../format/time.js";
import { Preview, type View } from "../streams/payload.js";
import type { Shown } from "./data.js";

interface TableOptions {
  events: readonly Shown[];
  view: View;
  opened: number | undefined;
  open: (position: number) => void;
  label: string;
}

/** Events in a table, the newest first. */
export function EventTable({ events, view, opened, open, label }: TableOptions) {
  return (
    <table class="messages events" aria-label={label}>
      <thead><tr><th scope="col" class="n">Position</th><th scope="col" class="when">Time</th><th scope="col" class="key">Type</th><th scope="col" class="key tags">Tags</th><th scope="col">Data</th></tr></thead>
      <tbody>
        {events.map((e) => (
          <tr key={e.position} class={e.position === opened ? "opened" : ""} onClick={() => getSelection()?.type !== "Range" && open(e.position)}>
            <th scope="row" class="n">
              <button type="button" class="link" aria-expanded={e.position === opened} onClick={(event) => { event.stopPropagation(); open(e.position); }}>{full(e.position)}</button>
            </th>
            <td class="when"><time dateTime={e.time}>{moment(e.time)}</time></td>
            <td class="key">{visible(e.type)}</td>
            <td class="key tags">{e.tags.length ? visible(e.tags.join("  ")) : <span class="soft">–</span>}</td>
            <td class="preview"><Preview payload={e.payload} view={view} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
