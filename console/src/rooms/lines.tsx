import { useLayoutEffect, useRef } from "preact/hooks";
import { visible } from "../format/bytes.js";
import { minute, moment } from "../format/time.js";
import type { Line } from "./talk.js";

/** A conversation. It stays at its end, unless the user has scrolled up. */
export function Lines({ lines, label, live = false }: { lines: Line[]; label: string; live?: boolean }) {
  const list = useRef<HTMLOListElement>(null);
  const end = useRef(true);
  useLayoutEffect(() => {
    if (end.current) list.current!.scrollTop = list.current!.scrollHeight;
  }, [lines]);
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = list.current!;
    end.current = scrollHeight - scrollTop - clientHeight < 20;
  };
  return (
    <div class="talk" role={live ? "log" : "group"} aria-label={label}>
      <ol ref={list} tabIndex={0} onScroll={scrolled}>
        {lines.map(({ id, kind, user, text, time }) => (
          <li key={id} class={kind}>
            {time && <time dateTime={time} title={moment(time)}>{live ? moment(time).slice(11, 19) : minute(time)}</time>}
            {kind !== "note" && <b>{user ? visible(user) : "nobody"}</b>}
            <span>{text}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}
