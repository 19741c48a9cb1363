import { ask } from "../api.js";
import { span } from "../format/numbers.js";
import { minute } from "../format/time.js";
import { Trouble } from "../parts/notice.js";
import { useLoad } from "../parts/load.js";

interface Node {
  node: string;
  address?: string;
  version?: string;
  started?: string;
  seen_ms?: number;
  heard: boolean;
}

/** The servers of the cluster. */
export function Nodes() {
  const { value, error, again } = useLoad((signal) => ask<{ node: string; nodes: Node[] }>("nodes", { signal }), [], 5000);
  return (
    <section class="card" aria-labelledby="nodes">
      <h2 id="nodes">Servers of the cluster</h2>
      {error !== undefined && <Trouble error={error} retry={again} title="They are not known" />}
      {value && (
        <div class="scroll" tabIndex={0} role="group" aria-labelledby="nodes">
          <table>
            <thead><tr><th scope="col">Name</th><th scope="col">Heard</th><th scope="col">Version</th><th scope="col">Began</th><th scope="col">Seen</th></tr></thead>
            <tbody>
              {value.nodes.map((n) => (
                <tr key={n.node} class={n.heard ? "" : "bad"}>
                  <th scope="row">{n.node}{n.node === value.node && " (this one)"}</th>
                  <td>{n.heard ? "yes" : "no"}</td>
                  <td>{n.version ?? "–"}</td>
                  <td>{n.started ? minute(n.started) : "–"}</td>
                  <td>{n.seen_ms === undefined ? "–" : `${span(n.seen_ms)} ago`}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
