import { useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { full } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { useLoad } from "../parts/load.js";
import { messageOf } from "../parts/notice.js";
import { path, type Job } from "./data.js";

interface JobsOptions {
  queue: string;
  /** How many dead letters the jobs of this page are to change, by their names. */
  totals: ReadonlyMap<string, number>;
  /** Whether the user may stop one. */
  stops: boolean;
}

/** The jobs that change many dead letters, the newest first. */
export function Jobs({ queue, totals, stops }: JobsOptions) {
  const { value, error, again } = useLoad((signal) => ask<{ jobs: Job[] }>(path(queue, "/jobs"), { signal }), [queue, totals.size], 1000);
  const [wrong, setWrong] = useState<unknown>();
  const stop = async (job: string) => {
    setWrong(undefined);
    try {
      await ask(path(queue, `/jobs/${part(job)}`), { method: "DELETE" });
      again();
    } catch (why) {
      setWrong(why);
    }
  };
  if (error === undefined && !value?.jobs.length) return null;
  return (
    <section class="card" aria-labelledby="jobs">
      <h2 id="jobs">Jobs</h2>
      <p class="soft">Those of the server that answers. It forgets them when it stops.</p>
      <p class="bad" role="alert">{(wrong ?? error) !== undefined && messageOf(wrong ?? error)}</p>
      <ul class="jobs">
        {value?.jobs.toReversed().map((job) => <li key={job.job}><Line job={job} total={totals.get(job.job)} stop={stops ? () => void stop(job.job) : undefined} /></li>)}
      </ul>
    </section>
  );
}

const states = { running: "runs", done: "is done", stopped: "was stopped", failed: "failed" };

function Line({ job: { job, act, state, changed, started, error }, total, stop }: { job: Job; total: number | undefined; stop: (() => void) | undefined }) {
  const name = act === "redrive" ? "Redrive" : "Purge";
  return (
    <div class="bar">
      <p>
        <strong>{name}</strong> of <time dateTime={started}>{minute(started)}</time> {states[state]}: {full(changed)}{total !== undefined && state === "running" && ` of about ${full(total)}`} changed.
        {error !== undefined && <span class="bad"> Code: <code>{error}</code></span>}
      </p>
      {state === "running" && <progress aria-label={`${name} of ${job}`} {...(total !== undefined && { value: changed, max: Math.max(total, changed, 1) })} />}
      {state === "running" && stop && <button type="button" onClick={stop}>Stop</button>}
    </div>
  );
}
