// JSON as it is written. JSON.parse would round large numbers, so numbers keep their text.

/** A value of JSON. `text` is how a number, or one of the words true, false and null, is written. */
export type Node =
  | { kind: "object"; members: { key: string; value: Node }[] }
  | { kind: "array"; items: Node[] }
  | { kind: "string"; value: string }
  | { kind: "number" | "word"; text: string };

const space = /[ \t\n\r]*/y;
const token = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[[\]{},:]/y;

/** How deep values may be nested. Deeper ones are shown as text. */
const deepest = 200;

/** Reads JSON, or returns undefined if it is none. */
export function parse(text: string): Node | undefined {
  let at = 0;
  const next = (): string => {
    space.lastIndex = at;
    space.exec(text);
    token.lastIndex = space.lastIndex;
    const found = token.exec(text);
    if (!found) throw new SyntaxError();
    at = token.lastIndex;
    return found[0];
  };
  const value = (first: string, depth: number): Node => {
    if (depth > deepest) throw new SyntaxError();
    if (first === "{") return { kind: "object", members: list("}", depth, member) };
    if (first === "[") return { kind: "array", items: list("]", depth, value) };
    if (first[0] === '"') return { kind: "string", value: JSON.parse(first) };
    if (/^[-\d]/.test(first)) return { kind: "number", text: first };
    if (/^[a-z]/.test(first)) return { kind: "word", text: first };
    throw new SyntaxError();
  };
  const member = (first: string, depth: number) => {
    if (first[0] !== '"' || next() !== ":") throw new SyntaxError();
    return { key: JSON.parse(first) as string, value: value(next(), depth) };
  };
  const list = <T>(end: string, depth: number, item: (first: string, depth: number) => T): T[] => {
    const all: T[] = [];
    let first = next();
    if (first === end) return all;
    for (;;) {
      all.push(item(first, depth + 1));
      const after = next();
      if (after === end) return all;
      if (after !== ",") throw new SyntaxError();
      first = next();
    }
  };
  try {
    const all = value(next(), 0);
    space.lastIndex = at;
    space.exec(text);
    return space.lastIndex === text.length ? all : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** A piece of text with what it is. */
export interface Piece {
  kind: "key" | "string" | "number" | "word" | "mark";
  text: string;
}

/** Lays a value out over lines. */
export function layOut(node: Node, indent = ""): Piece[] {
  const mark = (text: string): Piece => ({ kind: "mark", text });
  if (node.kind === "string") return [{ kind: "string", text: JSON.stringify(node.value) }];
  if (node.kind !== "object" && node.kind !== "array") return [{ kind: node.kind, text: node.text }];
  const inner = `${indent}  `;
  const items = node.kind === "array"
    ? node.items.map((item) => layOut(item, inner))
    : node.members.map(({ key, value }): Piece[] => [{ kind: "key", text: JSON.stringify(key) }, mark(": "), ...layOut(value, inner)]);
  const [open, close] = node.kind === "array" ? "[]" : "{}";
  if (!items.length) return [mark(open! + close!)];
  const lines = items.flatMap((item, i) => [mark(i ? `,\n${inner}` : inner), ...item]);
  return [mark(`${open}\n`), ...lines, mark(`\n${indent}${close}`)];
}

/** A value in one line, as it was written but for spaces. */
export function compact(node: Node): string {
  switch (node.kind) {
    case "object":
      return `{${node.members.map(({ key, value }) => `${JSON.stringify(key)}:${compact(value)}`).join()}}`;
    case "array":
      return `[${node.items.map(compact).join()}]`;
    case "string":
      return JSON.stringify(node.value);
    default:
      return node.text;
  }
}

/** The value of a member, if there is one. */
export function at(node: Node | undefined, key: string | number): Node | undefined {
  if (node?.kind === "array") return node.items[key as number];
  return node?.kind === "object" ? node.members.find((member) => member.key === key)?.value : undefined;
}

/** Whether JSON.parse and JSON.stringify would change a number in it. */
export function loses(node: Node): boolean {
  switch (node.kind) {
    case "object":
      return node.members.some(({ value }) => loses(value));
    case "array":
      return node.items.some(loses);
    case "number":
      return /^-?\d+$/.test(node.text) ? !Number.isSafeInteger(Number(node.text)) : !Number.isFinite(Number(node.text)) || node.text.replace(/[-.]|e.*$/gi, "").replace(/^0+/, "").length > 15;
    default:
      return false;
  }
}
