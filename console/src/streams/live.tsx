import { Follow } from "../parts/live.js";
import { place } from "../router.js";
import { Beside, NoMessages, type Look } from "./look.js";
import { MessageTable } from "./table.js";
import { streamSource } from "./tail.js";

/** The messages of a stream as they come. */
export function Live({ is, view, look, opened, open, detail }: Look) {
  const key = place.value.query.get("key") ?? "";
  return (
    <Follow source={() => streamSource(is.stream, key)} by={JSON.stringify([is.stream, key])} name="stream" view={view} look={look} open={open} note={key && `, key ${key}`}>
      {(messages, open, trouble) => (
        <Beside detail={detail}>
          {trouble}
          {messages.length === 0 && !trouble && <NoMessages>Waiting for the next message</NoMessages>}
          {messages.length > 0 && <MessageTable messages={messages} view={view} opened={opened} open={open} label="The newest messages" />}
        </Beside>
      )}
    </Follow>
  );
}
