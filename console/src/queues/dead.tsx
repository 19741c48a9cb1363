import { useEffect, useRef, useState } from "preact/hooks";
import { full } from "../format/numbers.js";
import { useLoad } from "../parts/load.js";
import { Empty, messageOf, Trouble } from "../parts/notice.js";
import { change as view, place } from "../router.js";
import { ViewChoice } from "../streams/detail.js";
import { Beside, positionOf } from "../streams/look.js";
import { change, count, deadPage, start, type Act, type Letter, type Options, type Stats, type Rights } from "./data.js";
import { Detail, useOpened } from "./detail.js";
import { filterOf, FilterForm } from "./filter.js";
import { Enqueue } from "./enqueue.js";
import { Jobs } from "./jobs.js";
import { LetterTable } from "./letters.js";
import { Question, type Asked } from "./question.js";
import { ReasonTable } from "./reasons.js";

const pageSize = 50;
const none: ReadonlySet<number> = new Set();

/** The dead letters of a queue, and what can be done with them. */
export function DeadLetters({ is, may, options }: { is: Stats; may: Rights | undefined; options: Options | undefined }) {
  const { query } = place.value;
  const { queue } = is;
  const filter = filterOf(query);
  const filtered = Object.keys(filter).length > 0;
  const after = positionOf(query.get("after")) ?? 0;
  const { value, error, again } = useLoad((signal) => deadPage(queue, filter, after, pageSize, signal), [queue, filter, after]);
  const { view: payloads, look, opened, open, close } = useOpened();
  const [marked, mark] = useState(none);
  const [asked, askFor] = useState<Asked>();
  const [totals, setTotals] = useState<ReadonlyMap<string, number>>(new Map());
  const [said, say] = useState("");
  const [edited, edit] = useState<Letter>();
  const [wrong, setWrong] = useState<unknown>();
  const title = useRef<HTMLHeadingElement>(null);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) again();
    first.current = false;
  }, [is.dead]);
  const letters = value?.letters ?? [];
  const chosen = new Set(letters.map(({ position }) => position).filter((position) => marked.has(position)));
  const acts = may !== undefined && may.admin === undefined;
  const attempt = async (run: () => Promise<void>) => {
    say("");
    setWrong(undefined);
    try {
      await run();
    } catch (why) {
      setWrong(why);
    }
  };
  const changeAt = async (act: Act, positions: number[]) => {
    const { count: changed } = await change(queue, act, positions);
    mark(none);
    say(`${full(changed)} of ${full(positions.length)} ${act === "redrive" ? "redriven" : "purged"}.`);
    if (opened !== undefined && positions.includes(opened)) view({ open: undefined }, { replace: true });
    again();
    title.current?.focus({ preventScroll: true });
  };
  /** Redriving some takes nothing away: the console asks only before the rest. */
  const some = (act: Act, positions: number[]) => attempt(async () => {
    if (act === "redrive") return changeAt(act, positions);
    askFor({ act, count: positions.length, more: false, filtered: false, run: () => changeAt(act, positions) });
  });
  const many = (act: Act) => attempt(async () => {
    if (filtered) say("Counting those that match.");
    const { count: n, more } = filtered ? await count(queue, filter, AbortSignal.timeout(60_000)) : { count: is.dead, more: false };
    say(n ? "" : "No dead letter matches.");
    if (!n) return;
    const run = async (perSecond?: number) => {
      const { job } = await start(queue, act, filter, perSecond);
      setTotals(new Map(totals).set(job, more ? Math.max(n, filtered ? 0 : is.dead) : n));
      title.current?.focus({ preventScroll: true });
    };
    askFor({ act, count: n, more, filtered, job: true, run });
  });
  const letter = letters.find(({ position }) => position === opened);
  const detail = opened !== undefined && value && (
    <Detail position={opened} message={letter} gone="It is not on this page of dead letters: it was redriven or purged, or the filter leaves it out." view={payloads} look={look} close={close}>
      {acts && (["redrive", "purge"] as const).map((act) => <button key={act} type="button" onClick={() => void some(act, [opened])}>{names[act]} this</button>)}
      {acts && may.enqueue === undefined && typeof letter?.payload === "string" && <button type="button" onClick={() => edit(letter)}>Edit …</button>}
    </Detail>
  );
  return (
    <>
      <h2 class="hidden" ref={title} tabIndex={-1}>Dead letters</h2>
      <FilterForm />
      {letters.length > 0 && <ReasonTable queue={queue} filter={filter} />}
      <div class="bar">
        {acts && letters.length > 0 && (["redrive", "purge"] as const).map((act) => (
          <div key={act} class="buttons" role="group" aria-label={names[act]}>
            <button type="button" aria-disabled={!chosen.size} onClick={() => chosen.size && void some(act, [...chosen])}>{names[act]} chosen ({chosen.size})</button>
            <button type="button" onClick={() => void many(act)}>{names[act]} all{filtered && " that match"} …</button>
          </div>
        ))}
        {letters.length > 0 && <ViewChoice view={payloads} look={look} name="view" />}
      </div>
      <p class="good" role="status">{said}</p>
      <p class="bad" role="alert">{wrong !== undefined && messageOf(wrong)}</p>
      <Jobs queue={queue} totals={totals} stops={acts} />
      <Beside detail={detail}>
        {error !== undefined && <Trouble error={error} retry={again} title="The dead letters could not be read" />}
        {value && !letters.length && <Empty title={filtered || after ? "No dead letter is here" : "There is no dead letter"}><p>{filtered ? "None matches the filter." : "A message dies when its last attempt has failed."}</p></Empty>}
        {letters.length > 0 && <LetterTable letters={letters} view={payloads} opened={opened} open={open} chosen={acts ? chosen : undefined} choose={mark} />}
        {!value && error === undefined && <p class="soft">Reading.</p>}
        {value && (after > 0 || value.next !== undefined) && (
          <div class="buttons" role="group" aria-label="Pages">
            <button type="button" aria-disabled={!after} onClick={() => after && view({ after: undefined, open: undefined })}>First page</button>
            <button type="button" aria-disabled={value.next === undefined} onClick={() => value.next !== undefined && view({ after: value.next, open: undefined })}>Next page</button>
          </div>
        )}
      </Beside>
      {edited && (
        <Enqueue key={edited.position} queue={queue} options={options} instead={edited} done={(replaced) => {
          edit(undefined);
          if (replaced) {
            say(`Message ${full(edited.position)} was replaced.`);
            view({ open: undefined }, { replace: true });
            again();
          }
          title.current?.focus({ preventScroll: true });
        }} />
      )}
      {asked && <Question queue={queue} asked={asked} close={() => askFor(undefined)} />}
    </>
  );
}

const names = { redrive: "Redrive", purge: "Purge" };
