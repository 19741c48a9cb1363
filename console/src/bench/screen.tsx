import { useState } from "preact/hooks";
import { ask } from "../api.js";
import { Trouble } from "../parts/notice.js";
import { useLoad } from "../parts/load.js";
import { useRights } from "../rights.js";
import { Compare } from "./compare.js";
import type { Known, Run } from "./data.js";
import { Results } from "./results.js";
import { Running, Start } from "./run.js";

/** Results of benchmarks, and the one that runs. */
export function BenchScreen() {
  const denied = useRights({ bench: "bench server:*" });
  return (
    <>
      <h1 tabIndex={-1}>Bench</h1>
      {denied?.bench && <Trouble error={denied.bench} title="You may not see benchmarks" />}
      {denied && !denied.bench && <Benches />}
    </>
  );
}

function Benches() {
  const [every, setEvery] = useState(5000);
  const run = useLoad(async (signal) => {
    const { run } = await ask<{ run?: Run }>("bench/run", { signal });
    setEvery(run?.state === "running" ? 1000 : 5000);
    return run ?? null;
  }, [], every);
  const known = useLoad((signal) => ask<Known>("bench", { signal }), [run.value?.ended], 30_000);
  const error = known.error ?? run.error;
  return (
    <>
      {error !== undefined && <Trouble error={error} retry={() => { known.again(); run.again(); }} title="The benchmarks could not be read" />}
      {known.value && <Start known={known.value} busy={run.value?.state === "running"} started={run.again} />}
      {run.value && <Running key={run.value.started} run={run.value} stopped={run.again} />}
      <Compare />
      {known.value ? <Results known={known.value} /> : error === undefined && <p class="soft">Asking the server.</p>}
    </>
  );
}
