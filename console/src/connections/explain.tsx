import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../api.js";
import { parse } from "../format/json.js";
import { Command } from "../parts/copy.js";
import { useLoad } from "../parts/load.js";
import { codeOf, messageOf } from "../parts/notice.js";
import { change, place } from "../router.js";
import { lineOf, rules, tagsOf, type Explained } from "./data.js";

/** Why is this denied? The question is in the address, but for claims, which are personal data. */
export function Explain({ connection }: { connection?: string }) {
  const { query } = place.value;
  const { value: known } = useLoad(rules, []);
  const field = (name: string) => query.get(name) ?? "";
  const [kind, setKind] = useState(field("kind") || "stream");
  const [wrong, setWrong] = useState("");
  const [answer, setAnswer] = useState<Explained>();
  const [error, setError] = useState<unknown>();
  const form = useRef<HTMLFormElement>(null);
  const open = query.has("verb");
  const question = ["as", "role", "kind", "verb", "name", "tags"].map(field);
  const explain = async () => {
    const [as, role, of, verb, name, tags] = question as [string, string, string, string, string, string];
    const claims = (form.current!.elements.namedItem("claims") as HTMLTextAreaElement | null)?.value.trim();
    setWrong("");
    setError(undefined);
    setAnswer(undefined);
    if (claims && parse(claims)?.kind !== "object") return setWrong("The claims are not a JSON object, such as {\"sub\":\"u7\"}.");
    const supposed = (of: unknown) => ({ role: role || undefined, claims: of });
    const who = connection ? { connection } : as ? { user: as } : supposed(claims ? JSON.parse(claims) : undefined);
    const about = { kind: of, verb, ...(of !== "server" && of !== "ingest" && { name }), ...(of === "events" && tags && { tags: tagsOf(tags) }) };
    const decided = (by: object) => ask<Explained>("rights/explain", { method: "POST", body: { ...by, ...about } });
    try {
      setAnswer(await decided(who).catch(async (why) => {
        if (!as || !role || role === "key" || codeOf(why) !== "not_found") throw why;
        return { ...await decided(supposed(claims ? JSON.parse(claims) : { sub: as })), supposed: true };
      }));
    } catch (why) {
      setError(why);
    }
  };
  useEffect(() => {
    if (open && known) void explain();
  }, [question.join("\n"), !known]);
  const submit = (event: Event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(form.current!)].filter(([name]) => name !== "claims")) as Record<string, string>;
    if (question.join("\n") === ["as", "role", "kind", "verb", "name", "tags"].map((name) => given[name] ?? "").join("\n")) return void explain();
    change({ name: undefined, tags: undefined, ...given }, { replace: true });
  };
  const one = kind !== "server" && kind !== "ingest";
  return (
    <details class="card publish" open={open}>
      <summary><h2>Why is this denied?</h2></summary>
      {known && (
        <form ref={form} onSubmit={submit}>
          {!connection && (
            <div class="bar">
              <label>A user who is connected here <input name="as" defaultValue={field("as")} maxLength={128} autocomplete="off" spellcheck={false} /></label>
              <label>or a role <input name="role" defaultValue={field("role")} placeholder="user" autocomplete="off" spellcheck={false} size={12} /></label>
            </div>
          )}
          {!connection && <label class="block">Claims of a token in that role, as JSON <textarea name="claims" rows={2} spellcheck={false} placeholder={'{"sub":"u7"}'} /></label>}
          <div class="bar">
            <label>Kind <select name="kind" value={kind} onChange={(event) => setKind(event.currentTarget.value)}>{Object.keys(known.kinds).sort().map((name) => <option key={name}>{name}</option>)}</select></label>
            <label>Verb <select name="verb" key={kind} defaultValue={field("verb")}>{known.kinds[kind]?.map((name) => <option key={name} selected={name === field("verb")}>{name}</option>)}</select></label>
            {one && <label>Name <input name="name" defaultValue={field("name")} placeholder={kind === "events" ? "default" : ""} maxLength={128} autocomplete="off" spellcheck={false} /></label>}
            {kind === "events" && <label>Tags <input name="tags" defaultValue={field("tags")} placeholder="tenant:a" autocomplete="off" spellcheck={false} /></label>}
            <button class="main">Explain</button>
          </div>
          <p class="bad" role="alert">{wrong || (error !== undefined && messageOf(error))}</p>
        </form>
      )}
      <div role="status" class="answer">{answer?.supposed && <p>{field("as")} has no connection here. For a token in the role {field("role")} with these claims, or with its name alone:</p>}{answer && <Answer is={answer} />}</div>
    </details>
  );
}

function Answer({ is }: { is: Explained }) {
  const who = is.user ? `${is.user}, in the role ${is.role},` : `A caller in the role ${is.role}`;
  if (is.decided_by === "open_mode") return <p>Allowed: this server is in open mode, and everybody may do everything.</p>;
  if (is.rule) {
    const { rule, bound, role, source } = is.rule;
    return <p><strong class="good">Allowed.</strong> {who} has this right by the rule <code>{rule}</code>{bound !== rule && <>, which is <code>{bound}</code> here</>}, {role ? `of the role ${role}, written in ${source ?? "the configuration"}` : `of its own ${is.by}`}.</p>;
  }
  if (is.allowed) return <p><strong class="good">Allowed.</strong> No rule grants it to {who.replace("A", "a")} but the SQL function on rights does.</p>;
  return (
    <>
      <p><strong class="bad">Denied.</strong> {who} has no rule that grants this{is.function === "no" && ", and the SQL function on rights says no"}{is.function === "failed" && ". The SQL function on rights has failed: the log of the server says why"}.</p>
      <p>{is.by === "key" ? "Rules of roles do not hold for API keys. Make another key of this name that has its rights and this one:" : "This rule would grant it:"}</p>
      <Command text={lineOf(is)} />
    </>
  );
}
