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

  async next_(): Promise<IteratorResult<T, undefined>> {
    for (;;) {
      const item = this.now_();
      const value = item instanceof Promise ? await item : item;
      if (value !== undefined) return { done: false, value };
      // A message that was skipped may have others after it.
      if (item !== undefined) continue;
      if (this.over_) return this.last_();
      await (this.arrival_ ??= new Promise((resolve) => (this.arrived_ = resolve)));
    }
  }

  private last_(): IteratorResult<T, undefined> {
    const error = this.error_;
    this.error_ = undefined;
    if (error !== undefined) throw error;
    return { done: true, value: undefined };
  }

  /** Ends the iteration after what has arrived. */
  end_(error?: unknown): void {
    this.over_ = true;
    this.error_ = error;
    this.wake_();
  }
}
