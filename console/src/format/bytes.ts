// Payloads as text and as bytes.

const encoder = new TextEncoder();

export const bytesOf = (payload: string | Uint8Array): Uint8Array => (typeof payload === "string" ? encoder.encode(payload) : payload);

const hex = (n: number, digits: number) => n.toString(16).padStart(digits, "0");

/** Lines with an offset, 16 bytes, and those of them that are letters of ASCII. */
export function hexLines(data: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const left = row.map((byte, i) => hex(byte, 2) + (i === 7 ? " " : "")).join(" ").padEnd(48);
    const right = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${hex(at, 6)}  ${left}  ${right}`);
  }
  return lines.join("\n");
}

export function base64(data: Uint8Array): string {
  let binary = "";
  for (const byte of data) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** The beginning of a payload, in one line. */
export function preview(payload: string | Uint8Array, most = 240): string {
  if (typeof payload === "string") return visible(payload.slice(0, most)) + (payload.length > most ? " …" : "");
  const few = payload.subarray(0, 24);
  return [...few].map((byte) => hex(byte, 2)).join(" ") + (payload.length > few.length ? " …" : "");
}

/** A text in which each control character, and each that turns the direction of writing, is visible. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (c) => (c === "\n" ? "⏎" : c === "\t" ? " " : "\u2423"));
}
