/** What has arrived for a program that iterates over it. */
export class Inbox<Raw, T> {
  items_: Raw[] = [];
  private over_ = false;
  private error_: unknown;
  private arrived_: (() => void) | undefined;
  private arrival_: Promise<void> | undefined;

  /** `now` takes the next item that has arrived, if there is one. */
  constructor(private readonly now_: () => T | Promise<T | undefined> | undefined) {}

  push_(item: Raw): void {
    if (this.over_) return;
    this.items_.push(item);
    this.wake_();
  }

  private wake_(): void {
    this.arrived_?.();
    this.arrived_ = this.arrival_ = undefined;
  }

  next_(): Promise<IteratorResult<T, undefined>> {
    const item = this.now_();
    if (item instanceof Promise) return item.then((value) => (value === undefined ? this.next_() : { done: false, value }));
    if (item !== undefined) return Promise.resolve({ done: false, value: item });
    if (this.over_) return this.last_();
    this.arrival_ ??= new Promise((resolve) => (this.arrived_ = resolve));
    return this.arrival_.then(() => this.next_());
  }

  private last_(): Promise<IteratorResult<T, undefined>> {
    const { error_: error } = this;
    this.error_ = undefined;
    return error === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(error);
  }

  /** Ends the iteration after what has arrived. */
  end_(error?: unknown): void {
    this.over_ = true;
    this.error_ = error;
    this.wake_();
  }
}
