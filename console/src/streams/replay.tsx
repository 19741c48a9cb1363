import { useRef, useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { bytes, full } from "../format/numbers.js";
import { moment } from "../format/time.js";
import { Ask } from "../parts/ask.js";
import { JobList, type Job } from "../parts/jobs.js";
import { useLoad } from "../parts/load.js";
import { codeOf, messageOf } from "../parts/notice.js";
import { change, href, place } from "../router.js";
import { positionOf, type Look } from "./look.js";

interface Spot {
  position: number;
  time: string;
}

/** A job that replays, or counts what it would replay. */
export interface ReplayJob extends Job {
  replay: string;
  to_stream?: string;
  to_queue?: string;
  key?: string;
  dry_run: boolean;
  begin: number;
  until: number;
  repeated: number;
  bytes: number;
  first?: Spot;
  last?: Spot;
}

const fields = ["into", "target", "key", "from", "to"] as const;

/** What a replay is asked for: the messages after a position, and where they go. */
const bodyOf = ({ to_stream, to_queue, key, until }: ReplayJob, after: number) => ({ to_stream, to_queue, key, until, after });

const goal = ({ to_stream, to_queue }: ReplayJob) => (to_queue === undefined ? `stream ${to_stream}` : `queue ${to_queue}`);

/** Stores a range of the stream again, in another stream or a queue: first it counts, then it asks, then a job of the server does it. */
export function Replay({ is }: Look) {
  const path = `streams/${part(is.stream)}`;
  const { query } = place.value;
  const form = useRef<HTMLFormElement>(null);
  const [wrong, setWrong] = useState<unknown>();
  const [counted, setCounted] = useState("");
  const [asked, askFor] = useState<{ job: ReplayJob; after: number; count: number; replay?: string }>();
  const { value, error, again } = useLoad((signal) => ask<{ jobs: ReplayJob[] }>(`${path}/jobs`, { signal }), [is.stream], 1000);
  const jobs = value?.jobs ?? [];
  const dry = jobs.find(({ job }) => job === counted);
  const start = (body: object) => ask<ReplayJob>(`${path}/replay`, { method: "POST", body });
  const count = async (event: Event) => {
    event.preventDefault();
    const data = new FormData(form.current!);
    const given = Object.fromEntries(fields.map((name) => [name, String(data.get(name) ?? "")])) as Record<(typeof fields)[number], string>;
    const [from, to] = [given.from, given.to].map((typed) => positionOf(typed.replace(/[\s,]/g, "")));
    setWrong(undefined);
    try {
      if (!given.target) throw new Error("Give the name of a stream or queue.");
      if ((given.from && from === undefined) || (given.to && to === undefined)) throw new Error("A position is a whole number, 0 or more.");
      change({ ...given, from, to }, { replace: true });
      const { job } = await start({ [`to_${given.into}`]: given.target, after: Math.max((from ?? 1) - 1, 0), until: to, key: given.key || undefined, dry_run: true });
      setCounted(job);
      again();
    } catch (why) {
      setWrong(why);
    }
  };
  return (
    <>
      <p class="bar"><button type="button" onClick={() => change(Object.fromEntries([...fields, "replay"].map((name) => [name, undefined])))}>Browse</button></p>
      <section class="card" aria-labelledby="replay">
        <h2 id="replay">Replay messages</h2>
        <p>Stores messages of this stream again, with their keys, headers and payloads, and in their order.</p>
        <form class="bar" ref={form} onSubmit={count} key={is.stream}>
          <label>Into the <select name="into" defaultValue={query.get("into") ?? "stream"}>{["stream", "queue"].map((kind) => <option key={kind} selected={kind === query.get("into")}>{kind}</option>)}</select></label>
          <label>Name <input name="target" maxLength={128} defaultValue={query.get("target") ?? ""} autocomplete="off" spellcheck={false} /></label>
          <label>From position <input name="from" size={9} inputMode="numeric" defaultValue={query.get("from") ?? ""} placeholder="first" autocomplete="off" /></label>
          <label>to <input name="to" size={9} inputMode="numeric" defaultValue={query.get("to") ?? ""} placeholder="last" autocomplete="off" /></label>
          {is.keyed && <label>Key <input name="key" size={12} maxLength={1024} defaultValue={query.get("key") ?? ""} placeholder="all" autocomplete="off" spellcheck={false} /></label>}
          <button class="main">Count first</button>
        </form>
        <p class="bad" role="alert">{wrong !== undefined && messageOf(wrong)}{codeOf(wrong) === "not_found" && <> Create it on the screen of <a href={href([`${query.get("into") ?? "stream"}s`])}>{query.get("into") ?? "stream"}s</a> first.</>}</p>
        {dry?.state === "done" && <Counted key={dry.job} job={dry} go={() => askFor({ job: dry, after: dry.begin, count: dry.changed })} />}
      </section>
      <JobList jobs={jobs} error={error} again={again} path={`${path}/jobs`} stops line={(job) => ({
        name: job.dry_run ? "Count" : `Replay into ${goal(job)}`, value: job.after - job.begin, of: job.until - job.begin,
        text: `${full(job.changed)} ${job.dry_run ? "counted" : "stored"}${job.repeated ? `, ${full(job.repeated)} were there already` : ""}, up to position ${full(job.after)} of ${full(job.until)}.`,
        more: !job.dry_run && job.state !== "done" && <button type="button" onClick={() => askFor({ job, after: job.after, count: job.until - job.after, replay: job.replay })}>Go on …</button>,
      })} />
      {asked && (
        <Ask title={`Replay into ${goal(asked.job)}?`} label="Replay" typed={asked.count > 1000 ? asked.job.to_queue ?? asked.job.to_stream : undefined} close={() => askFor(undefined)}
          act={async () => { await start({ ...bodyOf(asked.job, asked.after), replay: asked.replay }); again(); askFor(undefined); }}>
          <p>It stores {asked.replay && "at most "}{full(asked.count)} {asked.count === 1 ? "message" : "messages"}, from position {full(asked.after + 1)} to {full(asked.job.until)}.</p>
          <p class="soft">{asked.replay ? "It goes on with the same replay: what that has stored is not stored again." : "You can stop it: messages that are stored stay, and it can go on where it stopped."}</p>
        </Ask>
      )}
    </>
  );
}

/** What a dry run has found, and what is there where the messages go. */
function Counted({ job, go }: { job: ReplayJob; go: () => void }) {
  const [kind, name] = job.to_queue === undefined ? ["streams", job.to_stream!] : ["queues", job.to_queue];
  const { value: is, error } = useLoad((signal) => ask<Record<string, number>>(`${kind}/${part(name)}`, { signal }), [kind, name]);
  const spot = (s: Spot | undefined) => (s ? `${full(s.position)}, of ${moment(s.time)}` : "none");
  return (
    <>
      <table class="facts">
        <tbody>
          <tr><th scope="row">Messages</th><td>{full(job.changed)}, {bytes(job.bytes)}</td></tr>
          <tr><th scope="row">First</th><td>{spot(job.first)}</td></tr>
          <tr><th scope="row">Last</th><td>{spot(job.last)}</td></tr>
          <tr>
            <th scope="row">Target</th>
            <td>
              <a href={href([kind, name])}>{goal(job)}</a>
              {is && (kind === "streams" ? `, last position ${full(is.head!)}` : `: ${full(is.ready!)} ready, ${full(is.dead!)} dead${is.paused ? ", paused" : ""}`)}
              {error !== undefined && <span class="soft">. {messageOf(error)}</span>}
            </td>
          </tr>
        </tbody>
      </table>
      {job.changed > 0 ? <p><button type="button" class="main" onClick={go}>Replay {full(job.changed)} {job.changed === 1 ? "message" : "messages"} …</button></p> : <p>There is nothing to replay. Choose other positions, or another key.</p>}
    </>
  );
}
