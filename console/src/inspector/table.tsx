import { preview, visible } from "../format/bytes.js";
import { bytes, full, micros } from "../format/numbers.js";
import { moment } from "../format/time.js";
import type { Frame } from "./wire.js";

interface TableOptions {
  frames: readonly Frame[];
  opened: number | undefined;
  open: (frame: Frame) => void;
}

/** Frames in a table, the newest first. */
export function FrameTable({ frames, opened, open }: TableOptions) {
  return (
    <table class="messages frames" aria-label="Frames">
      <thead>
        <tr>
          <th scope="col" class="n">Frame</th><th scope="col" class="when">Time</th><th scope="col" class="way">Way</th><th scope="col" class="key">Type</th>
          <th scope="col" class="n size">Size</th><th scope="col" class="n">Answer</th><th scope="col">Text</th>
        </tr>
      </thead>
      <tbody>
        {frames.map((f) => (
          <tr key={f.n} class={f.n === opened ? "opened" : ""} onClick={() => getSelection()?.type !== "Range" && open(f)}>
            <th scope="row" class="n"><button type="button" class="link" aria-expanded={f.n === opened} onClick={(event) => { event.stopPropagation(); open(f); }}>{full(f.n)}</button></th>
            <td class="when">{moment(new Date(f.time).toISOString()).slice(11)}</td>
            <td class="way">{f.out ? "sent" : "received"}</td>
            <td class={f.failed ? "key bad" : "key"}>{visible(f.type) || "–"}</td>
            <td class="n size">{bytes(f.size)}</td>
            <td class="n">{f.took === undefined ? "" : micros(f.took)}</td>
            <td class="preview">{preview(f.text)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
