import { useEffect, useRef, useState } from "preact/hooks";
import { user } from "../session.js";

/** A value that is loaded, why it is not, and how to load it again. The value before stays until then, so that nothing jumps. */
export interface Loaded<T> {
  value: T | undefined;
  error: unknown;
  loading: boolean;
  again: () => void;
}

/** Loads something, and again when `by` changes, when another user signs in, and after `every` milliseconds while the page is visible. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, by: unknown[], every = 0): Loaded<T> {
  const [state, set] = useState<{ value?: T | undefined; error?: unknown; loading: boolean; key: string }>({ loading: true, key: "" });
  const [turn, next] = useState(0);
  const key = JSON.stringify([user.value, ...by]);
  const loading = useRef(load);
  loading.current = load;
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const run = async () => {
      try {
        const value = await loading.current(abort.signal);
        if (!abort.signal.aborted) set({ value, loading: false, key });
      } catch (error) {
        if (!abort.signal.aborted) set((before) => ({ value: before.key === key ? before.value : undefined, error, loading: false, key }));
      }
      if (every && !abort.signal.aborted) timer = window.setTimeout(() => (document.hidden ? wait() : void run()), every);
    };
    const wait = () => document.addEventListener("visibilitychange", () => void run(), { once: true, signal: abort.signal });
    set((before) => (before.key === key ? { ...before, loading: true } : { loading: true, key }));
    void run();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, turn, every]);
  const current = state.key === key;
  return { value: current ? state.value : undefined, error: current ? state.error : undefined, loading: !current || state.loading, again: () => next(turn + 1) };
}
