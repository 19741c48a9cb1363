/** Runs a callback of the program outside of the loop that reads. What it throws, or its promise, goes to `failed`. */
export function later<A extends unknown[]>(failed: (error: unknown) => void, fn: ((...args: A) => unknown) | undefined, ...args: A): void {
  if (fn) Promise.resolve().then(() => fn(...args)).catch(failed);
}

/** Listeners by name of event, each with one argument. */
export class Emitter<Events extends object> {
  private readonly listeners_ = new Map<keyof Events, Set<(event: never) => unknown>>();
  /** @internal */
  failed_: (error: unknown) => void = surface;

  /** Calls `listener` at each event, until the function that it returns is called. */
  on<K extends keyof Events>(name: K, listener: (event: Events[K]) => unknown): () => void {
    let set = this.listeners_.get(name);
    if (!set) this.listeners_.set(name, (set = new Set()));
    const own = (event: Events[K]) => listener(event);
    set.add(own);
    return () => void set.delete(own);
  }

  /** @internal */
  emit_<K extends keyof Events>(name: K, event: Events[K]): boolean {
    const set = this.listeners_.get(name);
    if (!set?.size) return false;
    // A listener of errors that fails is not told of that, or it would have no end.
    for (const listener of set) later(name === "error" ? surface : this.failed_, listener as (event: Events[K]) => unknown, event);
    return true;
  }
}

/** Makes an error an unhandled rejection, so that it is never silent. */
export function surface(error: unknown): void {
  void Promise.reject(error);
}
