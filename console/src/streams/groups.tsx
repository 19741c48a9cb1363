import { useRef, useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { full } from "../format/numbers.js";
import { fromInput, moment } from "../format/time.js";
import { Ask } from "../parts/ask.js";
import { useLoad } from "../parts/load.js";
import { messageOf, Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";
import { positionOf } from "./look.js";
import { info, pageAfter, positionAt } from "./messages.js";

interface Group {
  group: string;
  offset: number;
  lag: number;
}

/** Above so many messages, an act wants a name. */
const many = 1000;

/** The groups that read the stream, with how far they are. An administrator resets and drops them. */
export function Groups({ stream, acts }: { stream: string; acts: boolean }) {
  const path = `streams/${part(stream)}/groups`;
  const { value, error, again } = useLoad((signal) => ask<{ groups: Group[] }>(`${path}?limit=200`, { signal }), [stream], 2000);
  const [dropped, drop] = useState<Group>();
  const [reset, seek] = useState<Seek>();
  const [said, say] = useState("");
  const chosen = place.value.query.get("group");
  const open = value?.groups.find(({ group }) => group === chosen);
  if (error === undefined && !value?.groups.length && !said) return null;
  const done = (text: string) => {
    drop(undefined);
    seek(undefined);
    say(text);
    change({ group: undefined }, { replace: true });
    again();
  };
  return (
    <section class="card" aria-labelledby="groups">
      <h2 id="groups">Groups</h2>
      {error !== undefined && <Trouble error={error} retry={again} title={value ? "This is not up to date" : "The groups could not be listed"} />}
      {!!value?.groups.length && (
        <div class="scroll" tabIndex={0} role="group" aria-labelledby="groups">
          <table>
            <thead><tr><th scope="col">Name</th><th scope="col" class="n">Has read up to</th><th scope="col" class="n">Still to read</th>{acts && <th scope="col">Change</th>}</tr></thead>
            <tbody>
              {value.groups.map((one) => (
                <tr key={one.group}>
                  <th scope="row">{one.group}</th><td class="n">{full(one.offset)}</td><td class="n">{full(one.lag)}</td>
                  {acts && <td class="actions"><button type="button" aria-expanded={one === open} aria-label={`Reset ${one.group}`} onClick={() => change({ group: one === open ? undefined : one.group }, { replace: true })}>Reset …</button><button type="button" aria-label={`Drop ${one.group}`} onClick={() => drop(one)}>Drop …</button></td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {acts && open && <Reset key={open.group} stream={stream} is={open} next={seek} />}
      <p class="good" role="status">{said}</p>
      {reset && (
        <Ask title={`Reset ${reset.is.group}?`} label="Reset" typed={Math.abs(reset.to - reset.is.offset) > many ? reset.is.group : undefined} close={() => seek(undefined)}
          act={async () => { await ask(`${path}/${part(reset.is.group)}/seek`, { method: "POST", body: { after: reset.to } }); done(`${reset.is.group} continues after position ${full(reset.to)}.`); }}>
          <p>{effectOf(reset)}</p>
          <p>{reset.next ? `The next message is ${full(reset.next.position)}, of ${moment(reset.next.time)}.` : "The next message is the one that comes next."}</p>
          <p class="soft">Clients that read now go on where they are, and may move the group again: end them first.</p>
        </Ask>
      )}
      {dropped && (
        <Ask title={`Drop ${dropped.group}?`} label="Drop" typed={dropped.offset > many ? dropped.group : undefined} close={() => drop(undefined)}
          act={async () => { await ask(`${path}/${part(dropped.group)}`, { method: "DELETE" }); done(`${dropped.group} is dropped.`); }}>
          <p>Its position, {full(dropped.offset)}, is lost. No message is removed by that.</p>
          <p class="soft">A client that uses this name again makes a new group. Retention does not wait for a group that is dropped.</p>
        </Ask>
      )}
    </section>
  );
}

/** A position that a group is to have. */
export interface Seek {
  is: Group;
  to: number;
  /** The message after it. */
  next: { position: number; time: string } | undefined;
}

/** Says what a reset means. Positions may have gaps. */
export function effectOf({ is: { offset }, to }: Pick<Seek, "is" | "to">): string {
  const way = `From position ${full(offset)} to ${full(to)}: `;
  const n = Math.abs(to - offset);
  const messages = `${n === 1 ? "1 message" : `at most ${full(n)} messages`}`;
  return to === offset ? `The group is at position ${full(to)} already.` : way + (to < offset ? `${messages} will be read again.` : `${messages} will be skipped.`);
}

const places = { start: "the oldest message", end: "the end", position: "the message at position", time: "the first message of" } as const;

/** Chooses where a group goes on, and finds out what that means. */
function Reset({ stream, is, next }: { stream: string; is: Group; next: (seek: Seek) => void }) {
  const [where, setWhere] = useState<keyof typeof places>("start");
  const field = useRef<HTMLInputElement>(null);
  const [wrong, setWrong] = useState<unknown>();
  const preview = async (event: Event) => {
    event.preventDefault();
    setWrong(undefined);
    try {
      const to = await target(stream, where, field.current?.value ?? "");
      const [message] = (await pageAfter(stream, to, "", 1)).messages;
      next({ is, next: message, to: where === "start" && message ? message.position - 1 : to });
    } catch (why) {
      setWrong(why);
    }
  };
  return (
    <form class="bar" onSubmit={preview} aria-label={`Reset ${is.group}`}>
      <label>{is.group} continues with
        <select value={where} onChange={(event) => setWhere(event.currentTarget.value as keyof typeof places)}>
          {Object.entries(places).map(([name, text]) => <option key={name} value={name}>{text}</option>)}
        </select>
      </label>
      {where === "position" && <input ref={field} inputMode="numeric" size={12} aria-label="Position" autocomplete="off" />}
      {where === "time" && <input ref={field} type="datetime-local" step="1" aria-label="Time" />}
      <button>Preview</button>
      <p class="bad" role="alert">{wrong !== undefined && messageOf(wrong)}</p>
    </form>
  );
}

async function target(stream: string, where: keyof typeof places, typed: string): Promise<number> {
  if (where === "start") return 0;
  const { head } = await info(stream, AbortSignal.timeout(20_000));
  if (where === "end") return head;
  if (where === "time") {
    const time = fromInput(typed);
    if (time === undefined) throw new Error("Give a time.");
    return positionAt(stream, time);
  }
  const position = positionOf(typed.replace(/[\s,]/g, ""));
  if (position === undefined) throw new Error("A position is a whole number, 0 or more.");
  if (position > head + 1) throw new Error(`The last position is ${full(head)}.`);
  return Math.max(position - 1, 0);
}
