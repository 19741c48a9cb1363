// Tokens for a server with a secret.
import { createHmac } from "node:crypto";

const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** A token of a user with a role. */
export function tokenOf(secret, sub, role) {
  const now = Math.floor(Date.now() / 1000);
  const text = `${encode({ alg: "HS256", typ: "JWT" })}.${encode({ sub, role, aud: "tidewire", iat: now - 1, exp: now + 600 })}`;
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}
