import { useState } from "preact/hooks";
import { ask } from "../api.js";
import { visible } from "../format/bytes.js";
import { full } from "../format/numbers.js";
import { Ask } from "../parts/ask.js";
import { path, silence, type Members } from "./data.js";

/** Who is in a room. An administrator can remove a user. */
export function MemberList({ room, is, kicks }: { room: string; is: Members; kicks: boolean }) {
  const [asked, askFor] = useState<string>();
  const [said, say] = useState("");
  const kick = async () => {
    const { connections, silent } = await ask<{ connections: number; silent?: string[] }>(path(room, "kick"), { method: "POST", body: { user: asked } });
    say(`${asked} was removed: ${full(connections)} ${connections === 1 ? "connection" : "connections"}. ${silence(silent, "the user may be in the room there.")}`);
    askFor(undefined);
  };
  return (
    <section class="card" aria-labelledby="members">
      <h2 id="members">Members</h2>
      <p class="soft">{full(is.count)} {is.count === 1 ? "connection" : "connections"}, {is.truncated && "more than "}{full(is.members.length)} {is.members.length === 1 ? "user" : "users"} with a name</p>
      {is.silent && <p class="bad">{silence(is.silent, "its members are missing.")}</p>}
      <p class="good" role="status">{said}</p>
      {is.members.length > 0 && (
        <ul class="members" tabIndex={0} aria-label="Users">
          {is.members.map((user) => (
            <li key={user}><span>{visible(user)}</span>{kicks && <button type="button" class="link" aria-label={`Remove ${user}`} onClick={() => { say(""); askFor(user); }}>Remove</button>}</li>
          ))}
        </ul>
      )}
      {asked !== undefined && (
        <Ask title="Remove this user from the room?" label="Remove" close={() => askFor(undefined)} act={kick}>
          <p>All connections of <strong class="name">{asked}</strong> leave the room, on all servers, and are told so.</p>
          <p class="soft">It is no ban: the user can join again. To keep it out, take its right to join first, or revoke its tokens.</p>
        </Ask>
      )}
    </section>
  );
}
