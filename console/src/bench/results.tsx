import { useState } from "preact/hooks";
import { full } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { Command } from "../parts/copy.js";
import { Empty, messageOf } from "../parts/notice.js";
import { change, place } from "../router.js";
import { report, type Known, type Result } from "./data.js";

/** Opens the report page of results in another tab. */
export function Report({ results, main = false }: { results: string[]; main?: boolean }) {
  const [said, say] = useState<{ path?: string; error?: unknown }>({});
  const open = async () => {
    try {
      const path = await report(results);
      say({ path });
      window.open(path, "_blank", "noopener");
    } catch (error) {
      say({ error });
    }
  };
  return (
    <>
      <button type="button" class={main ? "main" : "link"} onClick={open} aria-label={main ? undefined : `Report of ${results.join(", ")}`}>Report</button>
      <span role="status">
        {said.path && <> <a href={said.path} target="_blank" rel="noopener">in another tab</a></>}
        {said.error !== undefined && <span class="bad"> {messageOf(said.error)}</span>}
      </span>
    </>
  );
}

/** All results in the folder. Two of them can be chosen, to compare them. */
export function Results({ known: { results, folder } }: { known: Known }) {
  const { query } = place.value;
  const [chosen, choose] = useState(["before", "after"].flatMap((name) => query.get(name) ?? []));
  const find = query.get("find") ?? "";
  const found = results.filter((one) => `${one.result} ${one.scenario}`.toLowerCase().includes(find.toLowerCase()));
  if (!results.length) {
    return (
      <Empty title="There is no result yet">
        <p>Start a scenario above, or run all of them in the folder in which the server was started. Results are in <code>{folder}</code>, or where <code>--results</code> says.</p>
        <Command text="tidewire bench all --quick" />
      </Empty>
    );
  }
  const compare = () => {
    // The newest result is the first of the list.
    const [after, before] = results.map(({ result }) => result).filter((result) => chosen.includes(result));
    if (chosen.length === 2) change({ before, after });
  };
  return (
    <section class="browser" aria-labelledby="results">
      <h2 id="results">Results</h2>
      <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
        <label>Find <input type="search" value={find} onInput={(event) => change({ find: event.currentTarget.value }, { replace: true })} /></label>
        <button type="button" aria-disabled={chosen.length !== 2} onClick={compare}>Compare</button>
        <p class="soft" role="status">{full(found.length)} of {full(results.length)} in <code>{folder}</code>. {chosen.length === 2 ? "Two are chosen." : "Choose two to compare them."}</p>
      </form>
      <div class="scroll" tabIndex={0} role="group" aria-label="Results">
        <table class="list">
          <thead>
            <tr><th scope="col"><span class="hidden">Compare</span></th><th scope="col">Result</th><th scope="col" class="rest">Scenario</th><th scope="col">Checks</th><th scope="col" class="n">Figure</th><th scope="col" class="rest">Date</th><th scope="col">Page</th></tr>
          </thead>
          <tbody>
            {found.map((one) => <Row key={one.result} one={one} chosen={chosen.includes(one.result)} choose={(yes) => choose((before) => [...before.filter((name) => name !== one.result).slice(yes ? -1 : 0), ...(yes ? [one.result] : [])])} />)}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ one: { result, scenario, valid, figure, row, started, machine }, chosen, choose }: { one: Result; chosen: boolean; choose: (yes: boolean) => void }) {
  return (
    <tr>
      <td><input type="checkbox" checked={chosen} onChange={(event) => choose(event.currentTarget.checked)} aria-label={`Compare ${result}`} /></td>
      <th scope="row">{result}<br /><small class="soft">{machine}</small></th>
      <td class="rest">{scenario}</td>
      <td>{valid ? <span class="good">valid</span> : <strong class="bad">INVALID</strong>}</td>
      <td class="n">{figure ?? "–"}<br /><small class="soft">{row}</small></td>
      <td class="rest figure"><time dateTime={started}>{minute(started)}</time></td>
      <td><Report results={[result]} /></td>
    </tr>
  );
}
