import { useState } from "preact/hooks";
import { ask } from "../api.js";
import { full, span } from "../format/numbers.js";
import { chosen, Choices } from "../parts/act.js";
import { useLoad } from "../parts/load.js";
import { messageOf, Trouble } from "../parts/notice.js";
import { useRights } from "../rights.js";
import { change, href, place } from "../router.js";
import { Consumers } from "./consumers.js";
import { DeadLetters } from "./dead.js";
import { path, rights, type Options, type Rights, type Stats } from "./data.js";
import { Enqueue } from "./enqueue.js";
import { Manage } from "./manage.js";
import { OverTime } from "./over.js";
import { oldest } from "./list.js";
import { Ready } from "./ready.js";

const views = { ready: "Ready messages", dead: "Dead letters", consumers: "Consumers" };

/** One queue. */
export function QueueScreen({ name }: { name: string }) {
  const { value, error, again } = useLoad((signal) => ask<Stats>(path(name), { signal }), [name], 1000);
  const options = useLoad((signal) => ask<Options>(path(name, "/options"), { signal }), [name]);
  const may = useRights(rights(name));
  return (
    <>
      <p class="path"><a href={href(["queues"])}>Queues</a></p>
      <h1 tabIndex={-1}>{name}</h1>
      {error !== undefined && <Trouble error={error} retry={again} title={value ? "This is not up to date" : "The queue could not be read"} />}
      {value && <Queue is={value} options={options.value} may={may} again={again} />}
      {may && may.enqueue === undefined && !options.loading && <Enqueue queue={name} options={options.value} />}
      {value && options.value && may && may.admin === undefined && <Manage is={value} options={options.value} changed={() => { options.again(); again(); }} />}
      {may?.enqueue !== undefined && <p class="soft">You cannot enqueue here. {messageOf(may.enqueue)}</p>}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
    </>
  );
}

interface QueueOptions {
  is: Stats;
  options: Options | undefined;
  may: Rights | undefined;
  again: () => void;
}

function Queue({ is, options, may, again }: QueueOptions) {
  const shows = chosen(views, place.value.query.get("show"));
  const show = (what: string) => change({ ...Object.fromEntries([...place.value.query.keys()].map((name) => [name, undefined])), show: what === "ready" ? undefined : what });
  return (
    <>
      <dl class="tiles">
        <Tile name="Ready" n={is.ready} note="not claimed yet" />
        <Tile name="Leased" n={is.leased} note={is.nodes === 1 ? "1 server consumes" : `${full(is.nodes)} servers consume`} />
        <Tile name="Delayed" n={is.delayed} note="due later, or again" />
        <Tile name="Dead" n={is.dead} note="dead letters" bad={is.dead > 0} />
        <Tile name="Oldest" n={oldest(is)} note="not done yet" />
        <Tile name="Enqueued" n={is.head} note="ever" />
      </dl>
      <OverTime is={is} />
      <Pause is={is} may={may} again={again} />
      {options && (
        <p class="soft">
          A message is a dead letter after {full(options.max_attempts)} attempts. The pause after the first is {span(options.retry_min_ms)}; it grows up to {span(options.retry_max_ms)}.
          {options.priorities !== undefined && ` There are ${options.priorities} priorities.`}{options.partitions !== undefined && ` There are ${options.partitions} partitions.`}
        </p>
      )}
      <Choices label="Show" names={views} now={shows} choose={show} />
      {shows === "ready" && <Ready is={is} />}
      {shows === "dead" && <DeadLetters is={is} may={may} options={options} />}
      {shows === "consumers" && <Consumers queue={is.queue} />}
    </>
  );
}

function Tile({ name, n, note, bad = false }: { name: string; n: number | string; note: string; bad?: boolean }) {
  return (
    <div class={bad ? "tile bad" : "tile"}>
      <dt>{name}</dt>
      <dd>{typeof n === "number" ? full(n) : n}</dd>
      <dd class="soft">{note}</dd>
    </div>
  );
}

/** Says whether the queue delivers, and changes that. */
function Pause({ is, may, again }: Omit<QueueOptions, "options">) {
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const turn = async () => {
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      await ask(path(is.queue, is.paused ? "/resume" : "/pause"), { method: "POST" });
      again();
    } catch (why) {
      setError(why);
    }
    setBusy(false);
  };
  return (
    <>
      <div class="bar">
        <p role="status">{is.paused ? <strong>Paused: no server delivers from this queue.</strong> : "The queue delivers."}</p>
        {may && may.admin === undefined && <button type="button" aria-disabled={busy} onClick={turn}>{is.paused ? "Resume" : "Pause"}</button>}
      </div>
      {may?.admin !== undefined && <p class="soft">You can look at this queue, but not pause it, and not redrive or purge its dead letters. {messageOf(may.admin)}</p>}
      <p class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
    </>
  );
}
