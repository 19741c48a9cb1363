import { useEffect, useRef, useState } from "preact/hooks";
import { full, micros } from "../format/numbers.js";
import { codeOf, messageOf } from "../parts/notice.js";
import { numberOf } from "../queues/enqueue.js";
import type { Talk } from "./talk.js";

/** How often a chat can be sent at once, to see the rate limit. */
const timesMost = 100;

/** Says something in a room, and what the server answers when that is too fast. */
export function Say({ talk, user }: { talk: Talk; user: string }) {
  const text = useRef<HTMLInputElement>(null);
  const times = useRef<HTMLInputElement>(null);
  const timer = useRef(0);
  const [said, say] = useState("");
  const [wrong, setWrong] = useState("");
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => text.current!.focus(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    const chat = text.current!.value;
    const { n = 1, wrong: bad } = numberOf(times.current!.value, "How often", timesMost);
    clearTimeout(timer.current);
    setWrong(bad ?? "");
    if (bad || !chat) return;
    say(n > 1 ? "Sending." : "");
    const failed = (await Promise.allSettled(Array.from({ length: n }, () => talk.say(chat, user)))).flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
    say(n > 1 ? `${full(n - failed.length)} of ${full(n)} sent.` : "");
    if (!failed.length && text.current?.value === chat) text.current.value = "";
    const slow = failed.filter((why) => codeOf(why) === "rate_limited");
    const wait = Math.max(0, ...slow.map(({ retryAfter }) => retryAfter ?? 0));
    if (slow.length) {
      setWrong(`Too fast: the server has refused ${slow.length === 1 ? "this chat" : `${full(slow.length)} chats`}. The next may be sent in ${micros(wait * 1000)}.`);
      timer.current = window.setTimeout(() => say("You may send the next chat now."), wait);
    } else if (failed.length) {
      setWrong(messageOf(failed[0]));
    }
  };
  return (
    <form class="card" onSubmit={submit} aria-label="Chat">
      <div class="bar">
        <label class="wide">Say <input ref={text} autocomplete="off" maxLength={10_000} /></label>
        <label>Times <input ref={times} size={3} inputMode="numeric" placeholder="1" aria-describedby="times" /></label>
        <button class="main">Send</button>
      </div>
      <p id="times" class="soft">Send it often at once to see the rate limit.</p>
      <p role="alert" class="bad">{wrong}</p>
      <p role="status" class="good">{said}</p>
    </form>
  );
}
