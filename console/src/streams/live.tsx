import { useEffect, useState } from "preact/hooks";
import { full, short } from "../format/numbers.js";
import { Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";
import { ViewChoice } from "./detail.js";
import { Beside, NoMessages, type Look } from "./look.js";
import { MessageTable } from "./table.js";
import { Tail } from "./tail.js";

/** The messages of a stream as they come. A message that is opened pauses it. */
export function Live({ is, view, look, opened, open, detail }: Look) {
  const key = place.value.query.get("key") ?? "";
  const [tail, setTail] = useState<Tail>();
  useEffect(() => {
    const made = new Tail(is.stream, key);
    setTail(made);
    return () => made.close();
  }, [is.stream, key]);
  if (!tail) return null;
  const { name, error } = tail.state.value;
  const running = name === "live" || name === "starting";
  const pauseAndOpen = (position: number) => {
    if (running) tail.pause();
    open(position);
  };
  return (
    <>
      <div class="bar">
        <div class="buttons">
          {name !== "ended" && <button type="button" class="main" onClick={() => (running ? tail.pause() : tail.resume())}>{running ? "Pause" : "Go on"}</button>}
          <button type="button" onClick={() => change({ live: undefined, open: undefined })}>Browse</button>
        </div>
        <ViewChoice view={view} look={look} name="view" />
        <p class="live" role="status">{said(name)}</p>
        <p class="soft">{full(tail.count.value)} messages, <span class="value">{short(tail.rate.value)}/s</span>{tail.skipped.value > 0 && `, ${full(tail.skipped.value)} positions left out`}{key && `, key ${key}`}</p>
      </div>
      <Beside detail={detail}>
        {error !== undefined && <Trouble error={error} retry={() => tail.resume()} title="The stream is not followed any more" />}
        {tail.messages.value.length === 0 && error === undefined && <NoMessages>Waiting for the next message</NoMessages>}
        {tail.messages.value.length > 0 && <MessageTable messages={tail.messages.value} view={view} opened={opened} open={pauseAndOpen} label="The newest messages" />}
      </Beside>
    </>
  );
}

const said = (name: string): string => ({ live: "Live", paused: "Paused: it goes on where it stopped", starting: "Starting" })[name] ?? "";
