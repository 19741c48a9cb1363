import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { minute } from "../format/time.js";
import { messageOf } from "./notice.js";

/** A job of a server. */
export interface Job {
  job: string;
  state: "running" | "done" | "stopped" | "failed";
  changed: number;
  after: number;
  started: string;
  error?: string;
}

interface JobsOptions<T extends Job> {
  jobs: T[];
  error: unknown;
  again: () => void;
  /** Where the jobs are in the API. */
  path: string;
  /** Whether the user may stop one. */
  stops: boolean;
  /** The name of a job, what it has done in words, and how much of how much that is. */
  line: (job: T) => { name: string; text: string; value?: number; of?: number | undefined; more?: ComponentChildren };
}

const states = { running: "runs", done: "is done", stopped: "was stopped", failed: "failed" };

/** The jobs of the server that answers, the newest first. */
export function JobList<T extends Job>({ jobs, error, again, path, stops, line }: JobsOptions<T>) {
  const [wrong, setWrong] = useState<unknown>();
  const stop = async (job: string) => {
    setWrong(undefined);
    try {
      await ask(`${path}/${part(job)}`, { method: "DELETE" });
      again();
    } catch (why) {
      setWrong(why);
    }
  };
  if (error === undefined && !jobs.length) return null;
  return (
    <section class="card" aria-labelledby="jobs">
      <h2 id="jobs">Jobs</h2>
      <p class="soft">Those of the server that answers. It forgets them when it stops.</p>
      <p class="bad" role="alert">{(wrong ?? error) !== undefined && messageOf(wrong ?? error)}</p>
      <ul class="jobs">
        {jobs.toReversed().map((job) => {
          const { name, text, value, of, more } = line(job);
          const runs = job.state === "running";
          return (
            <li key={job.job} class="bar">
              <p>
                <strong>{name}</strong> of <time dateTime={job.started}>{minute(job.started)}</time> {states[job.state]}: {text}
                {job.error !== undefined && <span class="bad"> Code: <code>{job.error}</code></span>}
              </p>
              {runs && <progress aria-label={`${name} of ${job.job}`} {...(of !== undefined && { value, max: Math.max(of, value ?? 0, 1) })} />}
              {runs && stops && <button type="button" onClick={() => void stop(job.job)}>Stop</button>}
              {!runs && more}
            </li>
          );
        })}
      </ul>
    </section>
  );
}
