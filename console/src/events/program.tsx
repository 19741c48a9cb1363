import type { QueryItem } from "tidewire";
import { Command } from "../parts/copy.js";
import { change, place } from "../router.js";
import { closed } from "../session.js";
import { codeOf, forms } from "./code.js";

/** The query as programs, of which the address chooses one. */
export function Program({ store, items }: { store: string; items: QueryItem[] }) {
  const chosen = forms.find((one) => one === place.value.query.get("code"));
  return (
    <section class="card" aria-labelledby="program">
      <h2 id="program">The query as code</h2>
      <div class="buttons" role="group" aria-label="Languages">
        {forms.map((form) => <button type="button" key={form} aria-pressed={form === chosen} onClick={() => change({ code: form === chosen ? undefined : form }, { replace: true })}>{form}</button>)}
      </div>
      {chosen && <Command text={codeOf(chosen, { origin: location.origin, store, items, closed: !!closed.value })} of="the program" />}
    </section>
  );
}
