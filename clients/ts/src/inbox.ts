import { Fifo } from "./fifo.js";

/** Things that have arrived, for a program that iterates over them. @internal */
export class Inbox<T> implements AsyncIterableIterator<T> {
  private readonly items = new Fifo<T>();
  private readonly takers = new Fifo<{ resolve(result: IteratorResult<T>): void; reject(error: unknown): void }>();
  private over = false;
  private error: unknown;

  /** `taken` is called with each item that the program gets, `closed` when the program ends the iteration. */
  constructor(private readonly taken: (item: T) => void, private readonly closed: () => void) {}

  get length(): number {
    return this.items.length;
  }

  push(item: T): void {
    if (this.over) return;
    const taker = this.takers.shift();
    if (!taker) return this.items.push(item);
    this.taken(item);
    taker.resolve({ done: false, value: item });
  }

  next(): Promise<IteratorResult<T>> {
    const item = this.items.shift();
    if (item !== undefined) {
      this.taken(item);
      return Promise.resolve({ done: false, value: item });
    }
    return new Promise((resolve, reject) => {
      this.takers.push({ resolve, reject });
      if (this.over) this.finish();
    });
  }

  private finish(): void {
    for (const { resolve, reject } of this.takers.drain()) {
      const { error } = this;
      this.error = undefined;
      if (error === undefined) resolve({ done: true, value: undefined });
      else reject(error);
    }
  }

  /** Ends the iteration after what has arrived. */
  end(error?: unknown): void {
    this.over = true;
    this.error = error;
    this.finish();
  }

  discard(): void {
    this.items.drain();
  }

  return(): Promise<IteratorResult<T>> {
    this.closed();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
