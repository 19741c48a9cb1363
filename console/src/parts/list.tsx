import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { ask, part } from "../api.js";
import { full } from "../format/numbers.js";
import { change, go, href, place } from "../router.js";
import { Empty, messageOf } from "./notice.js";

/** Those of the names that the address searches for. */
export function found<T>(all: readonly T[], name: (one: T) => string): T[] {
  const find = (place.value.query.get("find") ?? "").toLowerCase();
  return all.filter((one) => name(one).toLowerCase().includes(find));
}

/** Searches in a list, and says how many there are, of which at most `most` are shown. */
export function Find({ all, found, most, one }: { all: number; found: number; most: number; one: string }) {
  if (!all) return null;
  return (
    <>
      <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
        <label>Find <input type="search" value={place.value.query.get("find") ?? ""} onInput={(event) => change({ find: event.currentTarget.value }, { replace: true })} /></label>
        <p class="soft" role="status">{found < all && `${full(found)} of `}{full(all)} {one}{all > 1 && "s"}{found > most && `, the first ${most} of them`}</p>
      </form>
      {!found && <Empty title={`No ${one} has this in its name`}><p><button type="button" onClick={() => change({ find: undefined })}>Show all</button></p></Empty>}
    </>
  );
}

interface CreateOptions {
  title: string;
  /** The path of the API, and the screen, whose next part is the name. */
  api: string;
  screen: string;
  body?: () => object;
  children?: ComponentChildren;
}

/** Creates something that has a name, and shows it. */
export function Create({ title, api, screen, body, children }: CreateOptions) {
  const field = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<unknown>();
  const submit = async (event: Event) => {
    event.preventDefault();
    const name = field.current!.value;
    if (!name) return field.current!.focus();
    try {
      await ask(`${api}/${part(name)}`, { method: "POST", body: body?.() });
      go(href([screen, name]));
    } catch (why) {
      setError(why);
    }
  };
  return (
    <section class="card" aria-labelledby="create">
      <h2 id="create">{title}</h2>
      <form class="bar" onSubmit={submit}>
        <label>Name <input ref={field} maxLength={128} spellcheck={false} autocomplete="off" aria-describedby="create-error" /></label>
        {children}
        <button class="main">Create</button>
      </form>
      <p id="create-error" class="bad" role="alert">{error !== undefined && messageOf(error)}</p>
    </section>
  );
}
