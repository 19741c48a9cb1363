import { full } from "../format/numbers.js";
import { useRef } from "preact/hooks";
import { Ask } from "../parts/ask.js";
import { many, type Act } from "./data.js";
import { numberOf } from "./enqueue.js";

/** An act that is asked about. */
export interface Asked {
  act: Act;
  count: number;
  /** There are more than it has counted. */
  more: boolean;
  filtered: boolean;
  /** It is a job, which takes all that match when it runs. */
  job?: boolean;
  run: (perSecond?: number) => Promise<void>;
}

/** Asks whether dead letters are to be redriven or purged. */
export function Question({ queue, asked: { act, count, more, filtered, job, run }, close }: { queue: string; asked: Asked; close: () => void }) {
  const limit = useRef<HTMLInputElement>(null);
  const what = `${more ? "more than " : ""}${full(count)} dead ${count === 1 ? "letter" : "letters"}`;
  const title = `${act === "redrive" ? "Redrive" : "Purge"} ${what}?`;
  return (
    <Ask title={title} label={act === "redrive" ? "Redrive" : "Purge"} typed={more || count > many ? queue : undefined} close={close} act={async () => {
      const { n, wrong } = numberOf(limit.current?.value ?? "", "The limit", 100_000);
      if (wrong) throw new Error(wrong);
      await run(n);
      close();
    }}>
      <p>{act === "redrive" ? "Delivered again, with attempts that count from 1 on." : "Removed for ever."}</p>
      {job && <p class="soft">The job takes {filtered ? "all dead letters that match the filter" : "all dead letters"} when it runs: also those that are added until then.</p>}
      {job && act === "redrive" && <label>At most, in a second <input ref={limit} inputMode="numeric" autocomplete="off" placeholder="no limit" size={8} /></label>}
    </Ask>
  );
}
