import { jitter } from "./duration.js";
import { timedOut } from "./errors.js";

/** Gets a token. `refused` is true if the server has refused the one before. Throw {@link SignedOut} to end the client. */
export type TokenSource = (about: { refused: boolean; signal: AbortSignal }) => string | Promise<string>;

/** The token of a client. */
export class Token {
  /** The server has refused the one before. */
  refused_ = false;

  constructor(private readonly source_: string | TokenSource | undefined) {}

  get renewable_(): boolean {
    return typeof this.source_ === "function";
  }

  async ask_(signal: AbortSignal): Promise<string | undefined> {
    const source = this.source_;
    if (source === undefined) return undefined;
    const token = typeof source === "function" ? await source({ refused: this.refused_, signal }) : source;
    if (!token || typeof token !== "string") throw new TypeError("there is no token: return a text that is not empty, or throw");
    this.refused_ = false;
    return token;
  }
}

/** Gets a new token for a connection, and tries until the server has taken one, or the connection ends. */
export class Renewal {
  private timer_: ReturnType<typeof setTimeout> | undefined;
  private controller_!: AbortController;
  private failures_ = 0;

  constructor(private readonly token_: Token, private readonly send_: (token: string) => void, private readonly failed_: (error: unknown) => void) {
    void this.try_();
  }

  private async try_(): Promise<void> {
    const { signal } = (this.controller_ = new AbortController());
    this.timer_ = setTimeout(() => this.again_(timedOut("no new token within 10 s")), 10_000);
    try {
      const token = await this.token_.ask_(signal);
      if (!signal.aborted) this.send_(token!);
    } catch (error) {
      if (!signal.aborted) this.again_(error);
    }
  }

  /** Tries again after a pause: there is no token, or the server has refused it. */
  again_(error: unknown): void {
    this.end_();
    this.timer_ = setTimeout(() => void this.try_(), jitter(this.failures_++));
    this.failed_(error);
  }

  end_(): void {
    clearTimeout(this.timer_);
    this.controller_.abort();
  }
}
