import type { Core } from "./core.js";
import { jitter, sleep } from "./duration.js";
import { errorOf, type Problem } from "./errors.js";
import { soon } from "./tick.js";

/** What became of a job: its message is done, it is delivered again or a dead letter, or the result did not count. */
export type Outcome = "acked" | "nacked" | "lost";

/** Tells the server of the results of jobs. Acknowledgements of a short time go out together. */
export class Settler {
  private acks_: string[] = [];
  private batch_: Promise<Set<string>> | undefined;
  private send_: (() => void) | undefined;

  constructor(private readonly core_: Core, private readonly queue_: string) {}

  /** Acknowledges, `now` or within 10 ms. It is false if the lease was lost. */
  async ack_(delivery: string, now: boolean): Promise<boolean> {
    this.acks_.push(delivery);
    const batch = (this.batch_ ??= new Promise<void>((resolve) => {
      this.send_ = resolve;
      setTimeout(resolve, 10);
    }).then(() => {
      const acks = this.acks_;
      this.acks_ = [];
      this.batch_ = undefined;
      return this.settle_("ack", acks);
    }));
    if (now) soon(this.send_!);
    return !(await batch).has(delivery);
  }

  /** Gives a message back. It is false if the lease was lost. */
  async nack_(delivery: string, fields: object): Promise<boolean> {
    return !(await this.settle_("nack", [delivery], fields)).has(delivery);
  }

  /** Settles deliveries, or makes their leases longer, and returns those that are lost. */
  async settle_(type: string, deliveries: string[], fields?: object): Promise<Set<string>> {
    const gone = new Set<string>();
    for (let tries = 0; deliveries.length; ) {
      // More than the server takes at once go one after the other.
      const some = deliveries.splice(0, 1_000);
      try {
        await this.core_.outbox_.bound_(
          { type, queue: this.queue_, deliveries: some, ...fields },
          { lost_: () => errorOf({ code: "lease_lost", message: "the connection has ended", lost: some }) },
        );
      } catch (error) {
        const { lost, failed } = error as Problem;
        if (!lost && !failed) this.core_.failed_(error);
        // A lease that is not extended now may be extended later.
        for (const delivery of lost ?? (failed || type === "extend" ? [] : some)) gone.add(delivery);
        if (failed) {
          deliveries.push(...failed);
          await sleep(jitter(tries++));
        }
      }
    }
    return gone;
  }
}
