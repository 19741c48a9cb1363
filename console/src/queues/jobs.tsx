import { ask } from "../api.js";
import { full } from "../format/numbers.js";
import { JobList } from "../parts/jobs.js";
import { useLoad } from "../parts/load.js";
import { path, type Job } from "./data.js";

interface JobsOptions {
  queue: string;
  /** How many dead letters the jobs of this page are to change, by their names. */
  totals: ReadonlyMap<string, number>;
  /** Whether the user may stop one. */
  stops: boolean;
}

/** The jobs that change many dead letters. */
export function Jobs({ queue, totals, stops }: JobsOptions) {
  const { value, error, again } = useLoad((signal) => ask<{ jobs: Job[] }>(path(queue, "/jobs"), { signal }), [queue, totals.size], 1000);
  return (
    <JobList jobs={value?.jobs ?? []} error={error} again={again} path={path(queue, "/jobs")} stops={stops} line={({ job, act, state, changed }) => {
      const of = totals.get(job);
      return { name: act === "redrive" ? "Redrive" : "Purge", value: changed, of, text: `${full(changed)}${of !== undefined && state === "running" ? ` of about ${full(of)}` : ""} changed.` };
    }} />
  );
}
