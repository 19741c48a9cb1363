import { visible } from "../format/bytes.js";
import { full } from "../format/numbers.js";
import { moment } from "../format/time.js";
import type { Shown } from "./messages.js";
import { Preview, type View } from "./payload.js";

interface TableOptions {
  messages: Shown[];
  view: View;
  /** The position of the message that is open. */
  opened: number | undefined;
  open: (position: number) => void;
  label: string;
  /** A text that is marked in payloads. */
  find?: string | undefined;
}

/** Messages in a table, the newest first. */
export function MessageTable({ messages, view, opened, open, label, find }: TableOptions) {
  return (
    <table class="messages" aria-label={label}>
      <thead><tr><th scope="col" class="n">Position</th><th scope="col" class="when">Time</th><th scope="col">Key</th><th scope="col">Payload</th></tr></thead>
      <tbody>
        {messages.map((m) => (
          <tr key={m.position} class={m.position === opened ? "opened" : ""} onClick={() => getSelection()?.type !== "Range" && open(m.position)}>
            <th scope="row" class="n">
              <button type="button" class="link" aria-expanded={m.position === opened} onClick={(event) => { event.stopPropagation(); open(m.position); }}>
                {full(m.position)}
              </button>
            </th>
            <td class="when"><time dateTime={m.time}>{moment(m.time)}</time></td>
            <td class="key">{m.key === undefined ? <span class="soft">–</span> : visible(m.key)}</td>
            <td class="preview"><Preview payload={m.payload} view={view} find={find} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
