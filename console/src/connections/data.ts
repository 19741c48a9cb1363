// Connections, and what callers may do.
import { ask, part, text } from "../api.js";
import { at, compact, parse } from "../format/json.js";

export interface Connection {
  connection: string;
  user?: string;
  role?: string;
  address: string;
  client?: string;
  endpoint: string;
  opened: string;
  messages_in: number;
  messages_out: number;
  bytes_in: number;
  bytes_out: number;
  unsent_bytes: number;
  waiting_ms: number;
}

export interface Listed extends Connection {
  subscriptions: number;
  consumers: number;
  rooms: number;
}

/** A right of a caller, or a rule of the configuration. */
export interface Right {
  rule: string;
  bound?: string;
  role?: string;
  source?: string;
}

export interface Whole extends Connection {
  node?: string;
  subscriptions: { subscription: string; stream?: string; group?: string; store?: string }[];
  consumers: string[];
  rooms: string[];
  by?: "token" | "key" | "anonymous";
  key?: string;
  expires?: string;
  /** JSON, as it was written. */
  claims: string | undefined;
  rights: Right[];
  asks: boolean;
}

export interface Explained {
  allowed: boolean;
  decided_by: "rule" | "function" | "nothing" | "open_mode";
  user?: string;
  role?: string;
  by?: "token" | "key" | "anonymous";
  rule?: Right;
  function?: "yes" | "no" | "failed";
  grant?: string;
  /** The user was not there: it is an answer for a token that the question describes. */
  supposed?: boolean;
}

export interface Rules {
  closed: boolean;
  asks: boolean;
  rules: Right[];
  kinds: Record<string, string[]>;
}

export const path = (connection: string, rest = "") => `connections/${part(connection)}${rest}`;

export async function whole(connection: string, signal: AbortSignal): Promise<Whole> {
  const answer = await text(path(connection), { signal });
  const claims = at(parse(answer), "claims");
  return { ...JSON.parse(answer), claims: claims && compact(claims) };
}

export const rules = (signal: AbortSignal) => ask<Rules>("rules", { signal });

/** Tags that are written with spaces between them. */
export const tagsOf = (text: string): string[] => text.split(/\s+/).filter(Boolean);

/** The line that grants a right: a rule of a role, or that of a key. */
export const lineOf = ({ by, role, grant }: Explained): string => (by === "key" ? grant! : `${role}: ${grant}`);
