import { bytes, full, micros } from "../format/numbers.js";
import type { Database } from "./data.js";

/** The state of PostgreSQL. */
export function PostgreSQL({ database: d }: { database: Database }) {
  const rows: [string, string][] = [
    ["State", d.reachable ? "answers" : "does not answer"],
    ["Version", d.version ?? "–"],
    ["Answers within", d.latency_us === undefined ? "–" : micros(d.latency_us)],
    ["Size", d.size_bytes === undefined ? "–" : bytes(d.size_bytes)],
    ["Writes to its log", d.wal_bytes_per_second === undefined ? "–" : `${bytes(d.wal_bytes_per_second)}/s`],
    ["Standbys", full(d.standbys)],
    ["Connections of this server", `${full(d.connections)} of ${full(d.max_connections)}`],
  ];
  return (
    <section class={d.reachable ? "card" : "card trouble"} aria-labelledby="postgresql">
      <h2 id="postgresql">PostgreSQL</h2>
      {!d.reachable && <p role="alert">PostgreSQL does not answer this server. Publishes wait until it does, and nothing that was acknowledged is lost. <code>tidewire doctor</code> looks for the cause.</p>}
      <table class="facts">
        <tbody>
          {rows.map(([name, value]) => <tr key={name}><th scope="row">{name}</th><td>{value}</td></tr>)}
        </tbody>
      </table>
    </section>
  );
}
