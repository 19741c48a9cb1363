import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { short } from "../format/numbers.js";
import { Plot } from "../parts/plot.js";
import { merge, type Points } from "../parts/points.js";
import type { Stats } from "./data.js";

/** The numbers of a queue over time, from when it was opened in this page. */
export function OverTime({ is }: { is: Stats }) {
  const points = useSignal<Points>({ time: [] });
  useEffect(() => {
    const now = Math.floor(Date.now() / 1000);
    if (points.peek().time.at(-1) === now) return;
    points.value = merge(points.peek(), { time: [now], ready: [is.ready], leased: [is.leased], delayed: [is.delayed], dead: [is.dead] });
  }, [is]);
  return (
    <section class="plots" aria-labelledby="over-time">
      <h2 id="over-time" class="hidden">Over time</h2>
      <Plot title="Messages, since you look at them" points={points} write={short} least={4} lines={[
        { name: "ready", label: "ready", colour: 0 },
        { name: "leased", label: "leased", colour: 2, dash: [6, 4] },
        { name: "delayed", label: "delayed", colour: 3, dash: [2, 3] },
      ]} />
      <Plot title="Dead letters, since you look at them" points={points} write={short} least={4} lines={[{ name: "dead", label: "dead", colour: 1 }]} />
    </section>
  );
}
