import { visible } from "../format/bytes.js";
import { full } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { Preview, type View } from "../streams/payload.js";
import type { Letter } from "./data.js";

interface LettersOptions {
  letters: Letter[];
  view: View;
  opened: number | undefined;
  open: (position: number) => void;
  /** The positions that are chosen; undefined if nothing can be done with them. */
  chosen: ReadonlySet<number> | undefined;
  choose: (chosen: ReadonlySet<number>) => void;
}

/** Dead letters in a table, the oldest first. */
export function LetterTable({ letters, view, opened, open, chosen, choose }: LettersOptions) {
  const all = letters.every(({ position }) => chosen?.has(position));
  const toggle = (position: number, on: boolean) => {
    const next = new Set(chosen);
    if (on) next.add(position);
    else next.delete(position);
    choose(next);
  };
  return (
    <table class="messages letters" aria-label="Dead letters">
      <thead>
        <tr>
          {chosen && <th scope="col" class="box"><input type="checkbox" aria-label="All of this page" checked={all} onChange={() => choose(new Set(all ? [] : letters.map(({ position }) => position)))} /></th>}
          <th scope="col" class="n">Position</th><th scope="col" class="when">Died</th><th scope="col" class="n">Attempts</th><th scope="col">Reason</th><th scope="col" class="key rest">Key</th><th scope="col" class="rest">Payload</th>
        </tr>
      </thead>
      <tbody>
        {letters.map((m) => (
          <tr key={m.position} class={m.position === opened ? "opened" : ""} onClick={() => getSelection()?.type !== "Range" && open(m.position)}>
            {chosen && <td class="box" onClick={(event) => event.stopPropagation()}><input type="checkbox" aria-label={`Choose ${full(m.position)}`} checked={chosen.has(m.position)} onChange={(event) => toggle(m.position, event.currentTarget.checked)} /></td>}
            <th scope="row" class="n">
              <button type="button" class="link" aria-expanded={m.position === opened} onClick={(event) => { event.stopPropagation(); open(m.position); }}>{full(m.position)}</button>
            </th>
            <td class="when">{m.died === undefined ? "–" : <time dateTime={m.died}>{minute(m.died)}</time>}</td>
            <td class="n">{full(m.attempts)}</td>
            <td class="preview">{m.reason === undefined ? <span class="soft">none</span> : visible(m.reason)}</td>
            <td class="key rest">{m.key === undefined ? <span class="soft">–</span> : visible(m.key)}</td>
            <td class="preview rest"><Preview payload={m.payload} view={view} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
