import { useEffect, useRef } from "preact/hooks";
import { ask } from "../api.js";
import { useLoad } from "../parts/load.js";
import { Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";
import { changed, written, type Comparison } from "./data.js";
import { Report } from "./results.js";

/** Compares the two results of the address. */
export function Compare() {
  const { query } = place.value;
  const before = query.get("before");
  const after = query.get("after");
  return before && after ? <Compared before={before} after={after} all={query.has("all")} /> : null;
}

function Compared({ before, after, all }: { before: string; after: string; all: boolean }) {
  const { value, error, again } = useLoad((signal) => ask<Comparison>(`bench/compare?${new URLSearchParams({ before, after })}`, { signal }), [before, after]);
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    title.current!.focus({ preventScroll: true });
    title.current!.scrollIntoView({ block: "center" });
  }, []);
  const shown = value?.changes.filter(({ main }) => all || main) ?? [];
  const notes = [...(value?.differences ?? []), ...(value?.missing ?? [])];
  return (
    <section class="card" aria-labelledby="compare">
      <div class="head">
        <h2 id="compare" ref={title} tabIndex={-1}>Compared</h2>
        <span class="buttons">
          <button type="button" onClick={() => change({ before: after, after: before })}>Swap</button>
          <button type="button" aria-pressed={all} onClick={() => change({ all: all ? undefined : 1 }, { replace: true })}>Every metric</button>
          <Report results={[before, after]} main />
          <button type="button" onClick={() => change({ before: undefined, after: undefined, all: undefined })}>Close</button>
        </span>
      </div>
      {error !== undefined && <Trouble error={error} retry={again} title="The results could not be compared" />}
      {notes.length > 0 && (
        <details open={notes.length < 6}>
          <summary><strong>They were not measured in the same way: {notes.length} differences</strong></summary>
          <ul>{notes.map((note) => <li key={note} class="name">{note}</li>)}</ul>
        </details>
      )}
      {value && !shown.length && <p>They have no metric in common: they are of different scenarios, or of different rows.</p>}
      {shown.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Changes">
          <table class="list">
            <thead><tr><th scope="col">Row</th><th scope="col">Metric</th><th scope="col" class="n">{before}</th><th scope="col" class="n">{after}</th><th scope="col" class="n">Change</th></tr></thead>
            <tbody>
              {shown.map((one) => (
                <tr key={`${one.row} ${one.metric}`}>
                  <th scope="row">{one.row}</th><td>{one.metric}</td><td class="n">{written(one.before)}</td><td class="n">{written(one.after)}</td><td class="n figure">{changed(one)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="soft">Medians, with their 95 % intervals. ~ means that chance alone may explain the difference. A change is shown if a U-test has p below 0.05: that takes four repeats of each.</p>
    </section>
  );
}
