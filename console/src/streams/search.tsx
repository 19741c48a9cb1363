import { useEffect, useRef, useState } from "preact/hooks";
import { full } from "../format/numbers.js";
import { Empty, Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";
import { ViewChoice } from "./detail.js";
import { Finder, wants, type Want } from "./finder.js";
import { Beside, positionOf, type Look } from "./look.js";
import { MessageTable } from "./table.js";

/** What the address looks for. */
export const wantOf = (query: URLSearchParams): Want => Object.fromEntries(wants.flatMap((name) => (query.get(name) ? [[name, query.get(name)!]] : [])));

/** Looks for messages that contain a text, or have a value in their JSON. */
export function Search({ is, view, look, opened, open, detail }: Look) {
  const want = wantOf(place.value.query);
  const [finder, setFinder] = useState<Finder>();
  const asked = JSON.stringify(want);
  useEffect(() => {
    if (!want.text && !want.path) return setFinder(undefined);
    const made = new Finder(is.stream, want, positionOf(want.from ?? null) ?? 1, Math.min(positionOf(want.to ?? null) ?? is.head, is.head));
    setFinder(made);
    void made.run();
    return () => made.stop();
  }, [is.stream, asked]);
  const messages = finder?.messages.value ?? [];
  const leave = Object.fromEntries([...wants, "search", "open"].map((name) => [name, undefined]));
  return (
    <>
      <Fields keyed={is.keyed} want={want} key={asked} />
      <div class="bar">
        <button type="button" onClick={() => change(leave)}>Browse</button>
        {finder && <Progress finder={finder} />}
        {messages.length > 0 && <ViewChoice view={view} look={look} name="view" />}
      </div>
      <Beside detail={detail}>
        {finder?.error.value !== undefined && <Trouble error={finder.error.value} retry={() => void finder.run()} title="The search has stopped" />}
        {!finder && <Empty title="Nothing is looked for yet"><p>Give a text, or the path of a value in JSON. The server reads the messages, the newest first.</p></Empty>}
        {finder?.state.value === "done" && !messages.length && <Empty title="No message matches"><p>Look for less, or in more positions.</p></Empty>}
        {messages.length > 0 && <MessageTable messages={messages} view={view} opened={opened} open={open} label="Messages found" find={want.text} />}
      </Beside>
    </>
  );
}

const states = { running: "", paused: "Paused: there may be more.", stopped: "Stopped.", done: "All is read.", failed: "" };

function Progress({ finder }: { finder: Finder }) {
  const state = finder.state.value;
  const read = finder.read.value;
  return (
    <>
      {state === "running"
        ? <button type="button" onClick={() => finder.stop()}>Stop</button>
        : state !== "done" && <button type="button" onClick={() => void finder.run()}>Go on</button>}
      <progress aria-label="Positions that were read" value={read} max={Math.max(finder.all, 1)} />
      <p>Read {full(read)} of {full(finder.all)} positions, {full(finder.messages.value.length)} found.</p>
      <p role="status">{states[state]}</p>
    </>
  );
}

function Fields({ keyed, want }: { keyed: boolean; want: Want }) {
  const form = useRef<HTMLFormElement>(null);
  const [wrong, setWrong] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    const data = new FormData(form.current!);
    const next = Object.fromEntries(wants.map((name) => [name, String(data.get(name) ?? "")]));
    const bad = (["from", "to"] as const).some((name) => (next[name] = next[name]!.replace(/[\s,]/g, "")) && positionOf(next[name]!) === undefined);
    const why = bad ? "A position is a whole number, 0 or more." : !next.text && !next.path ? "Give a text or a path." : "";
    setWrong(why);
    if (!why) change({ ...next, open: undefined });
  };
  const field = (name: keyof Want, size: number) => <input name={name} size={size} maxLength={1024} defaultValue={want[name]} autocomplete="off" spellcheck={false} />;
  return (
    <>
      <form class="bar" role="search" ref={form} onSubmit={submit}>
        <label>Contains {field("text", 18)}</label>
        <label><input type="checkbox" name="case" value="1" defaultChecked={!!want.case} /> same case</label>
        <label>JSON path <input name="path" size={14} maxLength={1024} defaultValue={want.path} placeholder="items.0.name" autocomplete="off" spellcheck={false} /></label>
        <label>is {field("value", 10)}</label>
        {keyed && <label>Key {field("key", 10)}</label>}
        <label>From position {field("from", 9)}</label>
        <label>to {field("to", 9)}</label>
        <button class="main">Search</button>
      </form>
      <p class="bad" role="alert">{wrong}</p>
    </>
  );
}
