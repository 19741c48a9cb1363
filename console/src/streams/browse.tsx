import { useEffect, useRef, useState } from "preact/hooks";
import { full } from "../format/numbers.js";
import { fromInput } from "../format/time.js";
import { useLoad } from "../parts/load.js";
import { Empty, messageOf, Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";
import { ViewChoice } from "./detail.js";
import { pageAfter, pageBefore, positionAt, type Info, type Page } from "./messages.js";
import { Beside, NoMessages, positionOf, type Look } from "./look.js";
import { MessageTable } from "./table.js";

/** One page of stored messages: after the position of the address, or the newest. */
export function Browse({ is, view, look, opened, open, detail }: Look) {
  const { query } = place.value;
  const after = positionOf(query.get("after"));
  const key = query.get("key") ?? "";
  const [error, setError] = useState<unknown>();
  // The newest page changes when there are more messages; one after a position only while it is not full.
  const newest = after === undefined ? is.head : undefined;
  const size = useRef(false);
  const page = useLoad<Page>(
    (signal) => (after === undefined ? pageBefore(is.stream, is.head + 1, key, signal) : pageAfter(is.stream, after, key, undefined, signal)),
    [is.stream, after, key],
  );
  useEffect(() => {
    if (size.current && (newest !== undefined || !page.value?.full)) page.again();
    size.current = true;
  }, [is.head]);
  const messages = page.value?.messages ?? [];
  const first = messages[0]?.position;
  const last = messages.at(-1)?.position;
  const show = (at: number | undefined) => change({ after: at, open: undefined });
  const attempt = async (act: () => Promise<void>) => {
    setError(undefined);
    try {
      await act();
    } catch (why) {
      setError(why);
    }
  };
  const older = () => attempt(async () => {
    const before = await pageBefore(is.stream, first ?? (after ?? is.head) + 1, key);
    show(before.messages.length ? before.messages[0]!.position - 1 : 0);
  });
  const atEnd = after === undefined || !page.value?.full;
  return (
    <>
      <Seek is={is} after={after} name={key} attempt={attempt} />
      <div class="bar">
        <div class="buttons" role="group" aria-label="Pages">
          <button type="button" onClick={() => show(undefined)} aria-pressed={after === undefined}>Newest</button>
          <button type="button" onClick={() => last !== undefined && !atEnd && show(last)} aria-disabled={atEnd}>Newer</button>
          <button type="button" onClick={() => first !== undefined && after !== 0 && void older()} aria-disabled={first === undefined || after === 0}>Older</button>
          <button type="button" onClick={() => show(0)} aria-pressed={after === 0}>Oldest</button>
        </div>
        <button type="button" onClick={() => change({ live: 1, after: undefined, open: undefined })}>Follow live</button>
        <button type="button" onClick={() => change({ search: 1, after: undefined, open: undefined })}>Search</button>
        <button type="button" onClick={() => change({ replay: 1, from: after === undefined ? undefined : after + 1, after: undefined, open: undefined })}>Replay …</button>
        <ViewChoice view={view} look={look} name="view" />
      </div>
      {error !== undefined && <p class="bad" role="alert">{messageOf(error)}</p>}
      <Beside detail={detail}>
        {page.error !== undefined && <Trouble error={page.error} retry={page.again} title="The messages could not be read" />}
        {page.value && messages.length === 0 && (is.head === 0 ? <NoMessages /> : <Nothing byKey={key} />)}
        {messages.length > 0 && <MessageTable messages={messages.toReversed()} view={view} opened={opened} open={open} label={`Messages ${full(first!)} to ${full(last!)}`} />}
        {!page.value && page.error === undefined && <p class="soft">Reading.</p>}
      </Beside>
    </>
  );
}

function Nothing({ byKey }: { byKey: string }) {
  return (
    <Empty title={byKey ? "No message here has this key" : "There is no message after this position"}>
      <p><button type="button" onClick={() => change({ after: undefined, key: undefined })}>Show the newest messages</button></p>
    </Empty>
  );
}

interface SeekOptions {
  is: Info;
  after: number | undefined;
  name: string;
  attempt: (act: () => Promise<void>) => Promise<void>;
}

/** Goes to a position or a time, and shows one key alone. */
function Seek({ is, after, name, attempt }: SeekOptions) {
  const position = useRef<HTMLInputElement>(null);
  const time = useRef<HTMLInputElement>(null);
  const key = useRef<HTMLInputElement>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    void attempt(async () => {
      const at = fromInput(time.current!.value);
      const typed = position.current!.value.replace(/[\s,]/g, "");
      const from = typed ? positionOf(typed) : undefined;
      if (typed && from === undefined) throw new Error("A position is a whole number, 0 or more.");
      const start = at !== undefined ? await positionAt(is.stream, at) : from === undefined ? undefined : Math.max(from - 1, 0);
      time.current!.value = "";
      change({ after: start, key: key.current?.value, open: undefined });
    });
  };
  return (
    <form class="bar" onSubmit={submit}>
      <label>From position <input ref={position} inputMode="numeric" autocomplete="off" size={12} defaultValue={after === undefined ? "" : String(after + 1)} key={`after ${after}`} /></label>
      <label>or time <input ref={time} type="datetime-local" step="1" /></label>
      {is.keyed && <label>Key <input ref={key} maxLength={1024} autocomplete="off" spellcheck={false} size={14} defaultValue={name} key={`key ${name}`} /></label>}
      <button>Show</button>
    </form>
  );
}
