import { useRef, useState } from "preact/hooks";
import { fromInput, toInput } from "../format/time.js";
import { change, place } from "../router.js";
import { fields, type Filter } from "./data.js";
import { numberOf } from "./enqueue.js";

/** The filter of the address. */
export function filterOf(query: URLSearchParams): Filter {
  return Object.fromEntries(fields.flatMap((name) => (query.get(name) ? [[name, query.get(name)!]] : [])));
}

/** Shows dead letters with these fields alone. */
export const select = (filter: Filter) => change({ ...Object.fromEntries(fields.map((name) => [name, filter[name]])), after: undefined, open: undefined });

/** Chooses which dead letters are shown. */
export function FilterForm() {
  const filter = filterOf(place.value.query);
  const form = useRef<HTMLFormElement>(null);
  const [wrong, setWrong] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    const field = (name: string) => (form.current!.elements.namedItem(name) as HTMLInputElement).value;
    const least = numberOf(field("min_attempts"), "A number of attempts", 1_048_576);
    const most = numberOf(field("max_attempts"), "A number of attempts", 1_048_576);
    setWrong(least.wrong ?? most.wrong ?? "");
    if (least.wrong || most.wrong) return;
    select({
      reason: field("reason"), key: field("key"), ...(least.n && { min_attempts: String(least.n) }), ...(most.n && { max_attempts: String(most.n) }),
      since: fromInput(field("since")) ?? "", until: fromInput(field("until")) ?? "",
    });
  };
  return (
    <>
      <form class="bar" ref={form} onSubmit={submit} key={JSON.stringify(filter)}>
        <label>Reason contains <input name="reason" defaultValue={filter.reason} autocomplete="off" spellcheck={false} size={18} /></label>
        <label>Key <input name="key" defaultValue={filter.key} maxLength={1024} autocomplete="off" spellcheck={false} size={12} /></label>
        <label>Attempts from <input name="min_attempts" defaultValue={filter.min_attempts} inputMode="numeric" autocomplete="off" size={4} /></label>
        <label>to <input name="max_attempts" defaultValue={filter.max_attempts} inputMode="numeric" autocomplete="off" size={4} /></label>
        <label>Died from <input name="since" type="datetime-local" step="1" defaultValue={toInput(filter.since)} /></label>
        <label>before <input name="until" type="datetime-local" step="1" defaultValue={toInput(filter.until)} /></label>
        <button>Filter</button>
        {Object.keys(filter).length > 0 && <button type="button" onClick={() => select({})}>Show all</button>}
      </form>
      <p class="bad" role="alert">{wrong}</p>
    </>
  );
}
