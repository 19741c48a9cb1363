import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { bytes, full, micros, short, span } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { Trouble } from "../parts/notice.js";
import { change, href } from "../router.js";
import { token } from "../session.js";
import { overview, points, servers, trouble, type Overview } from "./data.js";
import { FirstSteps } from "./first.js";
import { Nodes } from "./nodes.js";
import { Plot } from "../parts/plot.js";
import { highest, last, lastKnown, total, type Points } from "../parts/points.js";
import { PostgreSQL } from "./postgres.js";

const rate = (n: number) => `${short(n)}/s`;
const wide = [6, 4];
const dots = [2, 3];

export function OverviewScreen() {
  const now = overview.value;
  // Where the first steps stand is settled once, so that nothing jumps.
  const quiet = useRef<boolean | undefined>(undefined);
  if (now) quiet.current ??= total(points.value, "stored") + total(points.value, "chats") === 0;
  return (
    <>
      <h1 tabIndex={-1}>Overview</h1>
      {trouble.value !== undefined && <Trouble error={trouble.value} title={now ? "The figures are not up to date" : "There are no figures"} />}
      {now && (
        <>
          <Insecure open={!now.closed} />
          {servers.value.length > 1 && (
            <div class="buttons" role="group" aria-label="Figures of server">
              {servers.value.map((name) => <button key={name} type="button" aria-pressed={name === (now.node ?? now.started)} onClick={() => change({ node: name }, { replace: true })}>{name}</button>)}
            </div>
          )}
          <Tiles now={points.value} is={now} />
          {quiet.current && <FirstSteps />}
          <section aria-labelledby="plots" class="plots">
            <h2 id="plots" class="hidden">The last 15 minutes</h2>
            <Plot title="Messages in" points={points} write={rate} least={4} lines={[
              { name: "stored", label: "streams, queues, events", colour: 0 },
              { name: "chats", label: "chats", colour: 1, dash: wide },
              { name: "ingested", label: "ingest", colour: 2, dash: dots },
            ]} />
            <Plot title="Messages out" points={points} write={rate} least={4} lines={[
              { name: "delivered", label: "streams and queues", colour: 0 },
              { name: "room_deliveries", label: "rooms", colour: 1, dash: wide },
              { name: "settled", label: "settled", colour: 3, dash: dots },
            ]} />
            <Plot title="From publish to commit" points={points} write={micros} least={1000} gaps lines={[
              { name: "publish_p50_us", label: "p50", colour: 0 },
              { name: "publish_p99_us", label: "p99", colour: 1, dash: wide },
            ]} />
            <Plot title="Connections" points={points} write={short} least={4} lines={[{ name: "connections", label: "open", colour: 5 }]} />
            <Plot title="Still to read by the worst group" points={points} write={short} least={4} lines={[{ name: "group_lag", label: "messages", colour: 3 }]} />
            <Plot title="Unsent to clients" points={points} write={bytes} least={1024} binary lines={[{ name: "unsent_bytes", label: "bytes", colour: 1 }]} />
          </section>
          <div class="pair">
            {now.database && <PostgreSQL database={now.database} />}
            {now.node && <Nodes />}
            {quiet.current === false && <FirstSteps />}
          </div>
        </>
      )}
      {!now && trouble.value === undefined && <p class="soft">Asking the server.</p>}
    </>
  );
}

function Tiles({ now, is: { started, group, queue } }: { now: Points; is: Overview }) {
  const value = (name: string, write: (n: number) => string) => {
    const n = last(now, name);
    return n === undefined ? "–" : write(n);
  };
  const latency = (name: string) => {
    const n = lastKnown(now, name);
    return n === undefined ? "–" : micros(n);
  };
  const slow = total(now, "missed") + total(now, "rate_limited");
  return (
    <dl class="tiles ten">
      <Tile name="Connections" value={value("connections", full)} note={`highest ${full(highest(now, "connections"))}`} />
      <Tile name="Stored" value={value("stored", rate)} note={`highest ${rate(highest(now, "stored"))}`} />
      <Tile name="Delivered" value={value("delivered", rate)} note={`highest ${rate(highest(now, "delivered"))}`} />
      <Tile name="Publish, p50" value={latency("publish_p50_us")} note={`p99 ${latency("publish_p99_us")}`} />
      <Tile name="Missed or refused" value={full(slow)} note={slow ? `${full(total(now, "missed"))} missed by slow members, ${full(total(now, "rate_limited"))} over a rate` : "none in 15 minutes"} bad={slow > 0} />
      <Tile name="Worst group" value={group ? full(group.lag) : "–"} note={group ? <>to read by <a href={href(["streams", group.stream], { group: group.group })}>{group.group} of {group.stream}</a></> : "no group is known"} />
      <Tile name="Worst queue" value={queue ? full(queue.ready) : "–"} note={queue ? <>ready in <a href={href(["queues", queue.queue], { show: queue.dead ? "dead" : undefined })}>{queue.queue}</a>, oldest {span(queue.oldest_ms)}, <span class={queue.dead ? "bad" : ""}>{full(queue.dead)} dead</span></> : "no queue is known"} />
      <Tile name="Unsent" value={value("unsent_bytes", bytes)} note="to all connections" />
      <Tile name="Memory" value={value("memory_bytes", bytes)} note="of the server" />
      <Tile name="Up for" value={span(Date.now() - Date.parse(started))} note={`since ${minute(started)}`} />
    </dl>
  );
}

function Tile({ name, value, note, bad = false }: { name: string; value: string; note: ComponentChildren; bad?: boolean }) {
  return (
    <div class={bad ? "tile bad" : "tile"}>
      <dt>{name}</dt>
      <dd>{value}</dd>
      <dd class="soft">{note}</dd>
    </div>
  );
}

const here = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

/** Says what is insecure about this server, as far as this page can see. */
function Insecure({ open }: { open: boolean }) {
  if (here.test(location.hostname)) return null;
  const plain = location.protocol === "http:";
  if (!open && !plain) return null;
  return (
    <div class="trouble" role="alert">
      <h2>This server is not secure</h2>
      {open && <p>It is in open mode: everybody who reaches this address can read and change everything. Give it keys and rules: <code>--auth-secret-file</code> and <code>--rule</code>.</p>}
      {plain && <p>It is reached without TLS: {token.value ? "your token and " : ""}all messages can be read on their way. Give it a certificate: <code>--tls-cert-file</code> and <code>--tls-key-file</code>.</p>}
    </div>
  );
}
