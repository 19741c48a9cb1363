import type { ComponentChildren } from "preact";
import { ask } from "../api.js";
import { full } from "../format/numbers.js";
import { minute, moment } from "../format/time.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { href } from "../router.js";

interface Audit {
  node?: string;
  since: string;
  denials: { code: string; user: string; role?: string; address: string; verb?: string; kind?: string; name?: string; reason?: string; count: number; last: string }[];
  acts: { time: string; user: string; address: string; act: string; target: string }[];
}

interface Columns {
  of: "denials" | "acts";
  empty: string;
  names: string[];
  rows: (audit: Audit) => ComponentChildren[][];
}

/** The last denials or acts of the server that answers. The audit log is the record. */
function Recent({ of, empty, names, rows }: Columns) {
  const { value, error, again } = useLoad((signal) => ask<Audit>("audit", { signal }), [], 5000);
  return (
    <>
      {error !== undefined && <Trouble error={error} retry={again} title={value ? "This is not up to date" : "This could not be read"} />}
      {value && <p class="soft">The last {full(1000)} of {value.node ? `the server ${value.node}` : "this server"} since {minute(value.since)}, the newest first. The audit log has all.</p>}
      {value && !value[of].length && <Empty title={empty} />}
      {value && value[of].length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label={`Recent ${of}`}>
          <table class="list">
            <thead><tr>{names.map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
            <tbody>{rows(value).map((row, i) => <tr key={i}>{row.map((cell, j) => <td key={j}>{cell}</td>)}</tr>)}</tbody>
          </table>
        </div>
      )}
      {!value && error === undefined && <p class="soft">Asking the server.</p>}
    </>
  );
}

export const Denials = () => (
  <Recent of="denials" empty="Nothing was denied" names={["Last", "Was denied", "Times", "User", "Address", "Code"]} rows={({ denials }) => denials.map((d) => [
    moment(d.last),
    d.verb ? <a href={href(["connections"], { as: d.user, role: d.role, verb: d.verb, kind: d.kind, name: d.name })}>{d.verb} {d.kind}:{d.name || "*"}</a> : d.reason ?? "–",
    full(d.count), d.user || "nobody", d.address, d.code,
  ])} />
);

export const Acts = () => (
  <Recent of="acts" empty="No administrator has acted" names={["Time", "User", "Address", "Act", "On"]} rows={({ acts }) => acts.map((a) => [moment(a.time), a.user || "nobody", a.address, a.act, a.target])} />
);
