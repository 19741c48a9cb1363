import { useEffect, useState } from "preact/hooks";
import { full } from "../format/numbers.js";
import { DetailCard } from "../parts/detail.js";
import { Copy } from "../parts/copy.js";
import { Empty } from "../parts/notice.js";
import { change, place } from "../router.js";
import { Beside } from "../streams/look.js";
import { Payload } from "../streams/payload.js";
import { Connect } from "./connect.js";
import { Send } from "./send.js";
import { FrameTable } from "./table.js";
import { matching, mostFrames, mostText, Wire, type Frame } from "./wire.js";

/** How many frames are in the table: the newest. */
const rows = 200;

/** Frames of /ws, in both directions. */
export function InspectorScreen() {
  const [wire] = useState(() => new Wire());
  const [again, setAgain] = useState<{ text: string }>();
  useEffect(() => () => wire.close(), []);
  return (
    <>
      <h1 tabIndex={-1}>Inspector</h1>
      <p class="soft">A connection to <code>/ws</code> of its own, with all its frames as they are.</p>
      <Connect wire={wire} />
      <Send wire={wire} again={again} />
      <Log wire={wire} again={(text) => setAgain({ text })} />
    </>
  );
}

function Log({ wire, again }: { wire: Wire; again: (text: string) => void }) {
  const { query } = place.value;
  const [filter, direction] = [query.get("filter") ?? "", query.get("direction") ?? ""];
  const [opened, setOpened] = useState<Frame>();
  const all = wire.frames.value;
  const found = matching(all, filter, direction);
  const paused = wire.paused.value;
  const close = () => {
    document.querySelector<HTMLElement>("tr.opened button")?.focus();
    setOpened(undefined);
  };
  return (
    <section aria-labelledby="frames" class="block">
      <h2 id="frames">Frames</h2>
      <div class="bar">
        <div class="buttons">
          <button type="button" aria-pressed={paused} onClick={() => wire.pause(!paused)}>{paused ? "Go on" : "Pause"}</button>
          <button type="button" onClick={() => { wire.clear(); setOpened(undefined); }}>Clear</button>
        </div>
        <div class="buttons" role="group" aria-label="Direction">
          {[["", "Both"], ["out", "Sent"], ["in", "Received"]].map(([value, label]) => (
            <button type="button" key={value} aria-pressed={direction === value} onClick={() => change({ direction: value }, { replace: true })}>{label}</button>
          ))}
        </div>
        <label>Contains <input type="search" value={filter} spellcheck={false} onInput={(event) => change({ filter: event.currentTarget.value }, { replace: true })} /></label>
        <p class="soft" role="status">{paused ? `Paused, ${full(wire.count.value)} frames until now` : found.length === all.length ? `${full(all.length)} frames` : `${full(found.length)} of ${full(all.length)} frames`}{found.length > rows && `, the newest ${rows} of them`}</p>
      </div>
      <p class="soft">The page keeps the last {full(mostFrames)} frames, and at most {mostText >> 20} Mi characters of them; also while it is paused.</p>
      <Beside label="Log" detail={opened && <Detail frame={opened} close={close} again={again} />}>
        {found.length === 0 && (all.length ? <Empty title="No frame matches"><p><button type="button" onClick={() => change({ filter: undefined, direction: undefined })}>Show all</button></p></Empty> : <Empty title="There is no frame yet"><p>Connect, choose a message and send it.</p></Empty>)}
        {found.length > 0 && <FrameTable frames={found.slice(0, rows)} opened={opened?.n} open={(frame) => setOpened(frame.n === opened?.n ? undefined : frame)} />}
      </Beside>
    </section>
  );
}

function Detail({ frame, close, again }: { frame: Frame; close: () => void; again: (text: string) => void }) {
  return (
    <DetailCard title={`Frame ${full(frame.n)}, ${frame.out ? "sent" : "received"}`} what="frame" close={close}>
      <Payload payload={frame.text} view="json" />
      <p class="actions">
        <Copy label="Copy frame" text={frame.text} />
        {frame.out && <button type="button" onClick={() => again(frame.text)}>Send again …</button>}
      </p>
    </DetailCard>
  );
}
