import { useEffect, useMemo } from "preact/hooks";
import { ask } from "../api.js";
import { useLoad } from "../parts/load.js";
import { codeOf, Empty, messageOf, Trouble } from "../parts/notice.js";
import { useRights } from "../rights.js";
import { change, href, place } from "../router.js";
import { closed } from "../session.js";
import { path, rights, type Members, type Rights } from "./data.js";
import { History } from "./history.js";
import { Lines } from "./lines.js";
import { MemberList } from "./members.js";
import { Say } from "./say.js";
import { Talk } from "./talk.js";

/** One room. */
export function RoomScreen({ name }: { name: string }) {
  const talk = useMemo(() => new Talk(name), []);
  useEffect(() => () => talk.end(), []);
  const may = useRights(rights(name));
  const { value, error, again } = useLoad((signal) => ask<Members>(path(name, "members"), { signal }), [name], talk.present.value ? 10_000 : 2000);
  const refused = codeOf(error) === "forbidden";
  const stored = value ? value.stored : refused && may !== undefined && !may.history;
  const is = value && { ...value, ...talk.present.value };
  const past = place.value.query.get("show") === "history";
  const show = (what?: string) => change({ show: what, before: undefined });
  return (
    <>
      <p class="path"><a href={href(["rooms"])}>Rooms</a></p>
      <h1 tabIndex={-1}>{name}</h1>
      {error !== undefined && !refused && <Trouble error={error} retry={again} title={value ? "This is not up to date" : "The room could not be read"} />}
      {(stored || past) && (
        <div class="buttons" role="group" aria-label="Show">
          <button type="button" aria-pressed={!past} onClick={() => show()}>Live</button>
          <button type="button" aria-pressed={past} onClick={() => show("history")}>History</button>
        </div>
      )}
      <div class="room">
        <div class="conversation">
          {past && <History room={name} />}
          <div class="conversation" hidden={past}>{may && <Live talk={talk} may={may} stored={stored} />}</div>
        </div>
        {is && <MemberList room={name} is={is} kicks={may !== undefined && !may.admin} />}
        {refused && <p class="soft">You cannot see who is here. {messageOf(error)}</p>}
      </div>
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
    </>
  );
}

/** The conversation as a member has it. */
function Live({ talk, may, stored }: { talk: Talk; may: Rights; stored: boolean }) {
  const state = talk.state.value;
  const user = closed.value ? "" : place.value.query.get("as") ?? "";
  const error = talk.error.value;
  const join = (event: Event) => {
    event.preventDefault();
    if (state === "out") void talk.join(user, { presence: !may.presence, history: stored && !may.history });
  };
  return (
    <>
      {error !== undefined && <Trouble error={error} title={codeOf(error) === "kicked" ? "You were removed from this room" : "You are not in this room"} />}
      {state !== "in" && !may.join && (
        <form class="bar" onSubmit={join} aria-label="Join">
          {!closed.value && <label>Your name <input value={user} maxLength={128} placeholder="none" spellcheck={false} autocomplete="off" onInput={(event) => change({ as: event.currentTarget.value }, { replace: true })} /></label>}
          <button class="main" aria-disabled={state === "joining"}>Join</button>
          <span class="soft">The others see that you are here.</span>
        </form>
      )}
      {may.join && <p class="soft">You cannot join. {messageOf(may.join)}</p>}
      {state === "in" && <p class="bar"><strong role="status">You are in the room.</strong><button type="button" onClick={() => talk.leave()}>Leave</button></p>}
      {state === "in" || talk.lines.value.length > 0 ? <Lines lines={talk.lines.value} label="Chats" live /> : state === "out" && !may.join && <Empty title="You see chats while you are in the room"><p>Join to read and to chat.{stored && " What was said before is in the history."}</p></Empty>}
      {state === "in" && (may.chat ? <p class="soft">You cannot chat. {messageOf(may.chat)}</p> : <Say talk={talk} user={user} />)}
    </>
  );
}
