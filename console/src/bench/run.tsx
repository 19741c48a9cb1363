import { useSignal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../api.js";
import { micros, short, span } from "../format/numbers.js";
import { Plot } from "../parts/plot.js";
import { messageOf } from "../parts/notice.js";
import { change, place } from "../router.js";
import { pointsOf, type Known, type Run } from "./data.js";
import { Report } from "./results.js";

/** Starts the quick form of a scenario. */
export function Start({ known: { scenarios, starts }, busy, started }: { known: Known; busy: boolean; started: () => void }) {
  const [error, setError] = useState<unknown>();
  const chosen = scenarios.find(({ scenario }) => scenario === place.value.query.get("scenario")) ?? scenarios[0];
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy || !chosen) return;
    setError(undefined);
    try {
      await ask("bench/run", { method: "POST", body: { scenario: chosen.scenario } });
      started();
    } catch (why) {
      setError(why);
    }
  };
  return (
    <section class="card" aria-labelledby="start">
      <h2 id="start">Run a quick benchmark</h2>
      {!starts || !chosen ? <p>This server is in open mode, and starts benchmarks only if it listens on its own machine alone. Start one with <code>tidewire bench</code>.</p> : (
        <>
          <form class="bar" onSubmit={submit}>
            <label>Scenario
              <select value={chosen.scenario} onChange={(event) => change({ scenario: event.currentTarget.value }, { replace: true })}>
                {scenarios.map(({ scenario }) => <option key={scenario}>{scenario}</option>)}
              </select>
            </label>
            <button class="main" aria-disabled={busy}>Start</button>
            <p class="soft">It measures {chosen.answers}.</p>
          </form>
          <p class="soft">It runs on the machine of this server, with a PostgreSQL of its own, and takes CPU time from the server. A quick run is a try, not a measurement.</p>
        </>
      )}
      <p class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
    </section>
  );
}

const states = { running: "is running", done: "has ended", stopped: "was stopped", failed: "has failed: its last lines say why" };
const rate = (n: number) => `${short(n)}/s`;
const seconds = 60;

/** The run: where it is, its figures and its lines. */
export function Running({ run, stopped }: { run: Run; stopped: () => void }) {
  const [error, setError] = useState<unknown>();
  const [stopping, setStopping] = useState(false);
  const points = useSignal(pointsOf(run));
  const log = useRef<HTMLPreElement>(null);
  useEffect(() => {
    points.value = pointsOf(run);
    log.current!.scrollTop = log.current!.scrollHeight;
  }, [run]);
  const stop = async () => {
    setStopping(true);
    try {
      await ask("bench/run", { method: "DELETE" });
      stopped();
    } catch (why) {
      setError(why);
      setStopping(false);
    }
  };
  const { scenario, state, step, started, ended } = run;
  return (
    <section class="card" aria-labelledby="run">
      <div class="head">
        <h2 id="run">{scenario} {states[state]}</h2>
        <span class="buttons">
          {state === "running" && <button type="button" aria-disabled={stopping} onClick={() => stopping || void stop()}>{stopping ? "Stopping" : "Stop"}</button>}
          {run.results.length > 0 && <Report results={run.results} main />}
        </span>
      </div>
      <p class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
      <p class="bar">
        {step ? <><progress aria-label="Steps" value={step.number - 1} max={step.of || 1} /> <span>Step {step.number} of {step.of}: <strong>{step.row}</strong>, {step.phase}</span></> : state === "running" && <span>It prepares itself.</span>}
        {ended !== undefined && <span class="soft">It took {span(Date.parse(ended) - Date.parse(started))}.</span>}
      </p>
      {(state === "running" || run.points.length > 0) && (
        <div class="plots">
          <Plot title="Messages" points={points} write={rate} least={4} seconds={seconds} lines={[{ name: "rate", label: "done", colour: 0 }]} />
          <Plot title="Latency" points={points} write={micros} least={1000} seconds={seconds} gaps lines={[
            { name: "p50", label: "p50", colour: 0 },
            { name: "p99", label: "p99", colour: 1, dash: [6, 4] },
          ]} />
        </div>
      )}
      <pre ref={log} class="payload log" tabIndex={0} aria-label="Lines of the run">{run.lines.join("\n")}</pre>
    </section>
  );
}
