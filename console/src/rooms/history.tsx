import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";
import { positionOf } from "../streams/look.js";
import { history, pageSize } from "./data.js";
import { Lines } from "./lines.js";

/** The chats of a stored room, page by page, the last ones first. */
export function History({ room }: { room: string }) {
  const before = positionOf(place.value.query.get("before"));
  const { value, error, again } = useLoad((signal) => history(room, before, signal), [room, before]);
  const chats = value?.chats ?? [];
  const older = chats.length === pageSize ? chats[0]!.position : undefined;
  return (
    <>
      {error !== undefined && <Trouble error={error} retry={again} title="The history could not be read" />}
      {value && !chats.length && <Empty title={before ? "No chat is before this position" : "Nothing was said here yet"} />}
      {chats.length > 0 && <Lines key={before} label="History" lines={chats.map((chat) => ({ ...chat, id: chat.position!, kind: "chat" }))} />}
      {!value && error === undefined && <p class="soft">Reading.</p>}
      <div class="buttons" role="group" aria-label="Pages">
        <button type="button" aria-disabled={older === undefined} onClick={() => older !== undefined && change({ before: older })}>Older</button>
        <button type="button" onClick={() => (before === undefined ? again() : change({ before: undefined }))}>Newest</button>
      </div>
    </>
  );
}
