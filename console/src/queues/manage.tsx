import { useRef, useState } from "preact/hooks";
import { ask } from "../api.js";
import { full } from "../format/numbers.js";
import { Ask } from "../parts/ask.js";
import { messageOf } from "../parts/notice.js";
import { go, href } from "../router.js";
import { many, path, type Options, type Stats } from "./data.js";
import { numberOf } from "./enqueue.js";

interface ManageOptions {
  is: Stats;
  options: Options;
  /** The queue or its options have changed. */
  changed: () => void;
}

/** Changes the options of a queue, empties it, and drops it. */
export function Manage({ is, options, changed }: ManageOptions) {
  const form = useRef<HTMLFormElement>(null);
  const [wrong, setWrong] = useState("");
  const [said, say] = useState("");
  const [asked, askFor] = useState<"purge" | "drop">();
  const waiting = is.ready + is.delayed;
  const all = waiting + is.leased + is.dead;
  const submit = async (event: Event) => {
    event.preventDefault();
    const numbers = ([["max_attempts", "The number of attempts", 1_048_576, 1], ["retry_min_ms", "The first pause", 86_400, 0.001], ["retry_max_ms", "The longest pause", 86_400, 0.001]] as const).map(([name, text, most, step]) => {
      const { n, wrong: why } = numberOf((form.current!.elements.namedItem(name) as HTMLInputElement).value, text, most, step);
      return { why: why ?? (n ? undefined : `${text} is more than 0.`), field: [name, step === 1 ? n : Math.round((n ?? 0) * 1000)] };
    });
    const why = numbers.find((one) => one.why)?.why;
    say("");
    setWrong(why ?? "");
    if (why) return;
    try {
      await ask(path(is.queue, "/options"), { method: "PATCH", body: Object.fromEntries(numbers.map(({ field }) => field)) });
      say("Changed. Servers take the new options within seconds.");
      changed();
    } catch (error) {
      setWrong(messageOf(error));
    }
  };
  const act = async () => {
    if (asked === "drop") {
      await ask(path(is.queue), { method: "DELETE" });
      return go(href(["queues"]));
    }
    const { count } = await ask<{ count: number }>(path(is.queue, "/purge"), { method: "POST", body: {} });
    say(`${full(count)} purged.`);
    askFor(undefined);
    changed();
  };
  return (
    <details class="card publish">
      <summary><h2>Change this queue</h2></summary>
      <form ref={form} onSubmit={submit} key={JSON.stringify(options)}>
        <div class="bar">
          <label>Attempts <input name="max_attempts" defaultValue={String(options.max_attempts)} inputMode="numeric" size={6} /></label>
          <label>First pause in seconds <input name="retry_min_ms" defaultValue={String(options.retry_min_ms / 1000)} inputMode="decimal" size={8} /></label>
          <label>Longest pause in seconds <input name="retry_max_ms" defaultValue={String(options.retry_max_ms / 1000)} inputMode="decimal" size={8} /></label>
          <button class="main">Change options</button>
        </div>
        <p role="status" class="good">{said}</p>
        <p role="alert" class="bad">{wrong}</p>
        <p class="bar">
          <button type="button" aria-disabled={!waiting} onClick={() => waiting && askFor("purge")}>Purge waiting messages …</button>
          <button type="button" onClick={() => askFor("drop")}>Drop the queue …</button>
        </p>
      </form>
      {asked && (
        <Ask title={asked === "drop" ? "Drop this queue?" : `Purge about ${full(waiting)} ${waiting === 1 ? "message" : "messages"}?`} label={asked === "drop" ? "Drop" : "Purge"} typed={(asked === "drop" ? all : waiting) > many ? is.queue : undefined} close={() => askFor(undefined)} act={act}>
          {asked === "drop"
            ? <p>The queue <strong class="name">{is.queue}</strong> is removed for ever, with about {full(all)} messages and dead letters. Its consumers end.</p>
            : <p>All messages that no server has claimed are removed for ever: those that are ready, and those that are delayed. Dead letters stay.</p>}
        </Ask>
      )}
    </details>
  );
}
