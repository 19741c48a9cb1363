/** A queue on an array: taking from its front costs nothing, whatever its length. @internal */
export class Fifo<T> {
  private items: T[];
  private head = 0;

  constructor(items: T[] = []) {
    this.items = items;
  }

  get length(): number {
    return this.items.length - this.head;
  }

  push(item: T): void {
    this.items.push(item);
  }

  peek(): T | undefined {
    return this.items[this.head];
  }

  shift(): T | undefined {
    if (this.head === this.items.length) return undefined;
    const item = this.items[this.head]!;
    this.items[this.head++] = undefined as T;
    if (this.head === this.items.length) {
      this.items = [];
      this.head = 0;
    } else if (this.head > 1024 && this.head * 2 > this.items.length) {
      this.items = this.items.slice(this.head);
      this.head = 0;
    }
    return item;
  }

  /** Takes all items away, and returns them. */
  drain(): T[] {
    const items = this.items.slice(this.head);
    this.items = [];
    this.head = 0;
    return items;
  }
}
