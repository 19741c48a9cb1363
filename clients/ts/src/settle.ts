import type { Core } from "./core.js";
import { jitter } from "./duration.js";
import { LeaseLost, type Problem } from "./errors.js";
import type { Job } from "./job.js";
import { soon } from "./tick.js";

/** What became of a job: its message is done, it is delivered again or a dead letter, or the result did not count. */
export type Outcome = "acked" | "nacked" | "lost";

const gather = 10;

interface Waiting {
  delivery: string;
  settled: (outcome: boolean) => void;
  failed: (error: unknown) => void;
}

/** Tells the server of the results of jobs. Acknowledgements of a short time go out together. @internal */
export class Settler {
  private acks: Waiting[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private flushing = false;

  constructor(private readonly core: Core, private readonly queue: string) {}

  /** Acknowledges. It is false if the lease was lost. `now` does not wait for others. */
  ack(job: Job<any>, now: boolean): Promise<boolean> {
    return new Promise((settled, failed) => {
      this.acks.push({ delivery: job.delivery, settled, failed });
      if (this.acks.length >= 1_000) this.flush();
      else if (now) this.flushSoon();
      else this.timer ??= setTimeout(() => this.flush(), gather);
    });
  }

  private flushSoon(): void {
    if (this.flushing) return;
    this.flushing = true;
    soon(() => {
      this.flushing = false;
      this.flush();
    });
  }

  /** Sends what waits. */
  flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const acks = this.acks;
    this.acks = [];
    if (acks.length) void this.send(acks, 0);
  }

  private async send(acks: Waiting[], tries: number): Promise<void> {
    try {
      await this.settle("ack", acks.map((ack) => ack.delivery));
      for (const ack of acks) ack.settled(true);
    } catch (error) {
      if (!(error instanceof Settlement)) return acks.forEach((ack) => ack.failed(error));
      const { gone, again } = error;
      for (const ack of acks) if (!again.has(ack.delivery)) ack.settled(!gone.has(ack.delivery));
      const rest = acks.filter((ack) => again.has(ack.delivery));
      if (rest.length) setTimeout(() => void this.send(rest, tries + 1), jitter(tries));
    }
  }

  /** Gives a message back. It is false if the lease was lost. */
  async nack(job: Job<any>, fields: object): Promise<boolean> {
    for (let tries = 0; ; tries++) {
      try {
        await this.settle("nack", [job.delivery], fields);
        return true;
      } catch (error) {
        if (!(error instanceof Settlement)) throw error;
        if (!error.again.has(job.delivery)) return false;
        await new Promise((resolve) => setTimeout(resolve, jitter(tries)));
      }
    }
  }

  /** Makes leases longer, and returns the deliveries whose lease was lost. */
  async extend(deliveries: string[], lease: number): Promise<Set<string>> {
    try {
      await this.settle("extend", deliveries, { lease_ms: lease });
    } catch (error) {
      if (error instanceof Settlement) return error.gone;
    }
    return new Set();
  }

  private settle(type: string, deliveries: string[], fields: object = {}): Promise<void> {
    const which = deliveries.length === 1 ? { delivery: deliveries[0] } : { deliveries };
    return this.core.outbox.bound({ type, queue: this.queue, ...which, ...fields }, {
      lost: () => new Settlement({ code: "lease_lost", message: "the connection has ended", lost: deliveries }),
      error: (answer) => (answer.lost || answer.failed ? new Settlement(answer) : undefined),
    });
  }
}

/** An answer that says which deliveries were not settled. */
class Settlement extends LeaseLost {
  readonly gone: Set<string>;
  readonly again: Set<string>;
  constructor(problem: Problem) {
    super(problem);
    this.gone = new Set(problem.lost);
    this.again = new Set(problem.failed);
  }
}

