/** The headers of a message. */
export type Headers = Record<string, unknown>;

/** The work of the program on one message. */
export interface Work {
  /** Runs fn as a part of this work. */
  run_<R>(fn: () => R): R;
  end_(error?: unknown): void;
}

/** What another entry point of this package adds to the client. */
export interface Hooks {
  /** The headers of a message that the program sends. */
  sending_?(headers: Headers | undefined): Headers | undefined;
  /** The program begins its work on a message. */
  working_?(verb: string, object: string, message: { position: number; headers?: Headers | undefined }): Work | undefined;
}

export const hooks: Hooks = {};
