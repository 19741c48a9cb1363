import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { full, short } from "../format/numbers.js";
import { change } from "../router.js";
import { ViewChoice } from "../streams/detail.js";
import type { View } from "../streams/payload.js";
import { Trouble } from "./notice.js";
import { Tail, type Source } from "./tail.js";

interface FollowOptions<T, Raw> {
  source: () => Source<T, Raw>;
  /** What is followed: if it changes, that begins anew. */
  by: string;
  name: string;
  view: View;
  look: (view: View) => void;
  open: (position: number) => void;
  /** A note beside the number of messages. */
  note?: string | false;
  /** Shows the messages, with what opens one. */
  children: (messages: T[], open: (position: number) => void, trouble: ComponentChildren) => ComponentChildren;
}

/** Shows what comes, until it is paused. A message that is opened pauses it. */
export function Follow<T extends { position: number }, Raw>({ source, by, name: what, view, look, open, note, children }: FollowOptions<T, Raw>) {
  const [tail, setTail] = useState<Tail<T, Raw>>();
  useEffect(() => {
    const made = new Tail(source());
    setTail(made);
    return () => made.close();
  }, [by]);
  if (!tail) return null;
  const { name, error } = tail.state.value;
  const running = name === "live" || name === "starting";
  const pauseAndOpen = (position: number) => {
    if (running) tail.pause();
    open(position);
  };
  const trouble = error !== undefined && <Trouble error={error} retry={() => tail.resume()} title={`The ${what} is not followed any more`} />;
  return (
    <>
      <div class="bar">
        <div class="buttons">
          {name !== "ended" && <button type="button" class="main" onClick={() => (running ? tail.pause() : tail.resume())}>{running ? "Pause" : "Go on"}</button>}
          <button type="button" onClick={() => change({ live: undefined, open: undefined })}>Browse</button>
        </div>
        <ViewChoice view={view} look={look} name="view" />
        <p class="live" role="status">{said(name)}</p>
        <p class="soft">{full(tail.count.value)} {what === "stream" ? "messages" : "events"}, <span class="value">{short(tail.rate.value)}/s</span>{tail.skipped.value > 0 && `, ${full(tail.skipped.value)} positions left out`}{note}</p>
      </div>
      {children(tail.messages.value, pauseAndOpen, trouble)}
    </>
  );
}

const said = (name: string): string => ({ live: "Live", paused: "Paused: it goes on where it stopped", starting: "Starting" })[name] ?? "";
