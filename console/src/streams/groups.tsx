import { ask, part } from "../api.js";
import { bytes, full, span } from "../format/numbers.js";
import { useLoad } from "../parts/load.js";

interface Group {
  group: string;
  offset: number;
  lag: number;
}

interface Retention {
  max_age_ms: number;
  max_bytes: number;
  consumed: boolean;
}

/** Says in words what a stream keeps. */
export function keeps({ max_age_ms, max_bytes, consumed }: Retention): string {
  const bounds = [...(max_age_ms ? [span(max_age_ms)] : []), ...(max_bytes ? [bytes(max_bytes)] : [])].join(" and ");
  if (!bounds) return consumed ? "what a group has not read" : "everything";
  return consumed ? `${bounds}, and what a group has not read` : bounds;
}

/** Shows what the stream keeps. A queue's stream has no retention of its own. */
export function Retained({ stream }: { stream: string }) {
  const { value } = useLoad((signal) => ask<Retention>(`streams/${part(stream)}/retention`, { signal }), [stream]);
  return <>{value ? keeps(value) : "–"}</>;
}

/** The groups that read the stream, with how far they are. */
export function Groups({ stream }: { stream: string }) {
  const { value } = useLoad((signal) => ask<{ groups: Group[] }>(`streams/${part(stream)}/groups?limit=200`, { signal }), [stream], 2000);
  if (!value?.groups.length) return null;
  return (
    <section class="card" aria-labelledby="groups">
      <h2 id="groups">Groups</h2>
      <div class="scroll" tabIndex={0} role="group" aria-labelledby="groups">
        <table>
          <thead><tr><th scope="col">Name</th><th scope="col" class="n">Has read up to</th><th scope="col" class="n">Behind by</th></tr></thead>
          <tbody>
            {value.groups.map(({ group, offset, lag }) => <tr key={group}><th scope="row">{group}</th><td class="n">{full(offset)}</td><td class="n">{full(lag)}</td></tr>)}
          </tbody>
        </table>
      </div>
    </section>
  );
}
