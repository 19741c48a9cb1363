/** What has arrived for a program that iterates over it. */
export class Inbox<Raw, T> {
  items: Raw[] = [];
  private over = false;
  private error: unknown;
  private arrived: (() => void) | undefined;
  private arrival: Promise<void> | undefined;

  /** `now` takes the next item that has arrived, if there is one. */
  constructor(private readonly now: () => T | Promise<T | undefined> | undefined) {}

  push(item: Raw): void {
    if (this.over) return;
    this.items.push(item);
    this.wake();
  }

  private wake(): void {
    this.arrived?.();
    this.arrived = this.arrival = undefined;
  }

  next(): Promise<IteratorResult<T, undefined>> {
    const item = this.now();
    if (item instanceof Promise) return item.then((value) => (value === undefined ? this.next() : { done: false, value }));
    if (item !== undefined) return Promise.resolve({ done: false, value: item });
    if (this.over) return this.last();
    this.arrival ??= new Promise((resolve) => (this.arrived = resolve));
    return this.arrival.then(() => this.next());
  }

  private last(): Promise<IteratorResult<T, undefined>> {
    const { error } = this;
    this.error = undefined;
    return error === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(error);
  }

  /** Ends the iteration after what has arrived. */
  end(error?: unknown): void {
    this.over = true;
    this.error = error;
    this.wake();
  }
}
