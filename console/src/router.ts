// The address bar has the whole state of a view: a link to it shows the same to somebody else.
import { signal } from "@preact/signals";
import { nameOf, part } from "./format/path.js";

const prefix = "/console/";

/** A view: the parts of its path after /console/, decoded, and its parameters. */
export interface Place {
  parts: string[];
  query: URLSearchParams;
}

/** Reads a path and its parameters. A part that is not percent-encoded correctly stays as it is. */
export function placeOf(pathname: string, search: string): Place {
  const decode = (one: string) => {
    try {
      return nameOf(decodeURIComponent(one));
    } catch {
      return one;
    }
  };
  const path = pathname.startsWith(prefix) ? pathname.slice(prefix.length) : "";
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(search) };
}

/** The address of a view. Parameters that are undefined or empty are left out. */
export function href(parts: string[], parameters: Record<string, string | number | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== "") query.set(name, String(value));
  }
  const search = query.toString();
  return prefix + parts.map(part).join("/") + (search && `?${search}`);
}

export const place = signal<Place>({ parts: [], query: new URLSearchParams() });

const read = () => void (place.value = placeOf(location.pathname, location.search));

/** Shows another view. `replace` leaves no entry to go back to. */
export function go(to: string, { replace = false } = {}): void {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  read();
}

/** Changes some parameters of this view. */
export function change(parameters: Record<string, string | number | undefined>, how?: { replace?: boolean }): void {
  const { parts, query } = place.value;
  go(href(parts, { ...Object.fromEntries(query), ...parameters }), how);
}

/** Follows the links of the console without loading the page again. */
export function start(): void {
  read();
  addEventListener("popstate", read);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest?.("a");
    if (!link || link.origin !== location.origin || !link.pathname.startsWith(prefix) || link.target || link.hash) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
