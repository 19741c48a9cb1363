import { useState } from "preact/hooks";
import { full } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { useLoad } from "../parts/load.js";
import { Trouble } from "../parts/notice.js";
import { useRights } from "../rights.js";
import { change, href, place } from "../router.js";
import { Browse } from "./browse.js";
import { Detail } from "./detail.js";
import { Groups } from "./groups.js";
import { Live } from "./live.js";
import { positionOf } from "./look.js";
import { info, type Info, type Shown } from "./messages.js";
import { views, type View } from "./payload.js";
import { Publish } from "./publish.js";
import { Replay } from "./replay.js";
import { Retained } from "./retention.js";
import { Search } from "./search.js";

/** One stream. */
export function StreamScreen({ name }: { name: string }) {
  const { value, error, again } = useLoad((signal) => info(name, signal), [name], 2000);
  return (
    <>
      <p class="path"><a href={href(["streams"])}>Streams</a></p>
      <h1 tabIndex={-1}>{name}</h1>
      {error !== undefined && <Trouble error={error} retry={again} title={value ? "This is not up to date" : "The stream could not be read"} />}
      {value && <Stream is={value} />}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
    </>
  );
}

function Stream({ is }: { is: Info }) {
  const may = useRights({ admin: `admin stream:${is.stream}` });
  const acts = !!may && !may.admin;
  return (
    <>
      <dl class="summary">
        {!is.partitions && <div><dt>Last position</dt><dd>{full(is.head)}</dd></div>}
        {is.partitions && <div><dt>Partitions</dt><dd>{is.partitions}</dd></div>}
        <div><dt>Read by key</dt><dd>{is.keyed ? "yes" : "no"}</dd></div>
        <div><dt>Keeps</dt><dd><Retained is={is} acts={acts} /></dd></div>
        <div><dt>Created</dt><dd><time dateTime={is.created}>{minute(is.created)}</time></dd></div>
      </dl>
      {is.partitions ? <Partitions stream={is.stream} count={is.partitions} /> : <Messages is={is} acts={acts} />}
    </>
  );
}

/** A stream with partitions has its messages in them. */
function Partitions({ stream, count }: { stream: string; count: number }) {
  return (
    <>
      <section class="card" aria-labelledby="partitions">
        <h2 id="partitions">Partitions</h2>
        <p>The messages of this stream are in its partitions. Choose one:</p>
        <ul class="partitions">
          {Array.from({ length: count }, (_, i) => <li key={i}><a href={href(["streams", `${stream}/${i}`])}>{stream}/{i}</a></li>)}
        </ul>
      </section>
      <Publish stream={stream} from={undefined} />
    </>
  );
}

function Messages({ is, acts }: { is: Info; acts: boolean }) {
  const { query } = place.value;
  const [again, setAgain] = useState<Shown>();
  const view = views.find((one) => one === query.get("view")) ?? "json";
  const opened = positionOf(query.get("open"));
  const Mode = query.has("live") ? Live : query.has("search") ? Search : query.has("replay") ? Replay : Browse;
  const look = (next: View) => change({ view: next === "json" ? undefined : next }, { replace: true });
  const open = (position: number) => change({ open: position === opened ? undefined : position }, { replace: true });
  const close = () => {
    document.querySelector<HTMLElement>("tr.opened button")?.focus();
    change({ open: undefined }, { replace: true });
  };
  const detail = opened !== undefined && <Detail stream={is.stream} position={opened} view={view} look={look} close={close} again={(message) => setAgain({ ...message })} />;
  const common = { is, view, look, opened, open, detail };
  return (
    <>
      <Mode {...common} />
      <Publish stream={is.stream} from={again} />
      <Groups stream={is.stream} acts={acts} />
    </>
  );
}
