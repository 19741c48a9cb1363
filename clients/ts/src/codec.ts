/** Turns values into payloads and back. A payload that is not UTF-8 arrives as bytes. */
export interface Codec<T> {
  encode(value: T): string | Uint8Array;
  decode(payload: string | Uint8Array): T | Promise<T>;
}

/** A schema with `parse`, as of zod, or a [Standard Schema](https://standardschema.dev). */
export type Schema<T> = { parse(value: unknown): T } | StandardSchema<T>;

/** The part of a Standard Schema that is used here. */
export interface StandardSchema<T> {
  readonly "~standard": {
    validate(value: unknown): StandardResult<T> | Promise<StandardResult<T>>;
    readonly types?: { readonly input: unknown; readonly output: T } | undefined;
  };
}

/** What a Standard Schema says of a value. */
export type StandardResult<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: ReadonlyArray<{ readonly message: string }> };

/** Which payloads a stream or queue has: JSON, unless `codec` says otherwise; checked by `schema`, if there is one. */
export interface Typed<T> {
  codec?: Codec<T>;
  schema?: Schema<T>;
}

const utf8 = new TextDecoder("utf-8", { fatal: true });
const textOf = (payload: string | Uint8Array) => (typeof payload === "string" ? payload : utf8.decode(payload));

/** JSON, the default. */
export const json: Codec<any> = {
  encode(value) {
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError("the value is no JSON");
    return text;
  },
  decode: (payload) => JSON.parse(textOf(payload)),
};

/** Texts, as they are. */
export const text: Codec<string> = { encode: (value) => value, decode: textOf };

/** Any bytes. */
export const bytes: Codec<Uint8Array> = {
  encode: (value) => value,
  decode: (payload) => (typeof payload === "string" ? encoder.encode(payload) : payload),
};

/** The codec of a stream or queue. */
export function codecOf<T>({ codec = json as Codec<T>, schema }: Typed<T>): Codec<T> {
  if (!schema) return codec;
  const check = checker(schema);
  return {
    encode: (value) => codec.encode(value),
    decode: (payload) => use(codec.decode(payload), check),
  };
}

function checker<T>(schema: Schema<T>): (value: unknown) => T | Promise<T> {
  if (!("~standard" in schema)) return (value) => schema.parse(value);
  const result = (found: StandardResult<T>): T => {
    if (found.issues) throw new TypeError(found.issues.map((issue) => issue.message).join("; "));
    return found.value;
  };
  return (value) => use(schema["~standard"].validate(value), result);
}

/** Uses a value now, or when its promise is fulfilled. */
const use = <A, B>(value: A | Promise<A>, fn: (value: A) => B | Promise<B>): B | Promise<B> => (value instanceof Promise ? value.then(fn) : fn(value));

/** The fields of a payload on the wire, as JSON without the braces. */
export function payloadFields(payload: string | Uint8Array): string {
  return typeof payload === "string" ? `"payload":${JSON.stringify(payload)}` : `"payload_base64":"${toBase64(payload)}"`;
}

/** The payload of a message that came. */
export function payloadOf(m: { payload?: string; payload_base64?: string }): string | Uint8Array {
  return m.payload_base64 === undefined ? (m.payload ?? "") : fromBase64(m.payload_base64);
}

function toBase64(data: Uint8Array): string {
  let binary = "";
  for (let i = 0; i < data.length; i += 0x2000) binary += String.fromCharCode(...data.subarray(i, i + 0x2000));
  return btoa(binary);
}

function fromBase64(data: string): Uint8Array {
  return Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
}

export const encoder = new TextEncoder();
const { Buffer: buffer } = globalThis as { Buffer?: { byteLength(text: string): number } };

/** The number of bytes of a text in UTF-8. */
export const byteLength = (value: string): number => (buffer ? buffer.byteLength(value) : encoder.encode(value).length);
