// Requests of /v1, for what has no message on /ws.
import { answered, refuse, token } from "./session.js";

/** An error of the server, or that there was no answer. */
export class Failure extends Error {
  /** The right that is missing if the code is forbidden, as in the errors of the client. */
  verb?: string;
  kind?: string;
  object?: string;
  /** The oldest position that is kept, if the code is too_old. */
  oldest?: number;
  /** The event that conflicts, if the code is conflict. */
  position?: number;

  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
  }
}

interface Call {
  method?: string;
  /** A text is JSON already. */
  body?: unknown;
  signal?: AbortSignal;
}

/** Asks, and returns the answer as text. Its numbers may be larger than those of JavaScript. */
export async function text(path: string, { method = "GET", body, signal }: Call = {}): Promise<string> {
  const headers: Record<string, string> = {};
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  let answer: string;
  try {
    response = await fetch(`/v1/${path}`, { method, headers, body: body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body), signal: signal ?? null });
    answer = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    answered.value = false;
    throw new Failure(0, "no_answer", "The server does not answer. Is it running, and is this machine connected to it?");
  }
  answered.value = true;
  if (response.ok) return answer;
  if (response.status === 401) refuse();
  throw failureOf(response.status, answer);
}

/** The error of an answer. */
export function failureOf(status: number, answer: string): Failure {
  try {
    const { code, message, oldest, position, verb, kind, name } = JSON.parse(answer).error;
    return Object.assign(new Failure(status, code, message), { oldest, position, verb, kind, object: name });
  } catch {
    return new Failure(status, "unexpected", `The server, or a proxy before it, has answered with status ${status}.`);
  }
}

/** Asks, and returns the answer. */
export const ask = async <T>(path: string, call?: Call): Promise<T> => JSON.parse(await text(path, call));

export { part } from "./format/path.js";
