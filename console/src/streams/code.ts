// A message as a program that publishes it.
import { base64 } from "../format/bytes.js";
import { loses, parse, type Node } from "../format/json.js";
import { part } from "../api.js";
import { curl, go, python, quoted, typescript, type Language, type Server } from "../parts/program.js";

/** A message, and where it is published. */
export interface Published extends Server {
  stream: string;
  key: string | undefined;
  headers: string | undefined;
  payload: string | Uint8Array;
}

export function codeOf(language: Language, p: Published): string {
  switch (language) {
    case "curl":
      return inCurl(p);
    case "TypeScript":
      return inTypeScript(p);
    case "Python":
      return inPython(p);
    case "Go":
      return inGo(p);
  }
}

function inCurl(p: Published): string {
  const { stream, key, headers, payload } = p;
  const fields = [
    ...(key === undefined ? [] : [`"key":${quoted(key)}`]),
    ...(headers === undefined ? [] : [`"headers":${headers}`]),
    typeof payload === "string" ? `"payload":${quoted(payload)}` : `"payload_base64":"${base64(payload)}"`,
  ];
  return curl(p, `streams/${part(stream)}/messages`, `{${fields.join()}}`);
}

function inTypeScript(p: Published): string {
  const { stream, key, headers, payload } = p;
  const text = typeof payload === "string";
  const codec = text ? "text" : "bytes";
  const value = text ? quoted(payload) : `Uint8Array.from(atob("${base64(payload)}"), (c) => c.charCodeAt(0))`;
  const node = headers === undefined ? undefined : parse(headers);
  const options = [...(key === undefined ? [] : [`key: ${quoted(key)}`]), ...(node ? [`headers: ${exact(node)}`] : [])];
  return typescript(p, `connect, ${codec}`, `await tw.stream(${quoted(stream)}, { codec: ${codec} }).publish(${value}${options.length ? `, { ${options.join(", ")} }` : ""});`);
}

/** JSON as a literal of JavaScript, which is written as it was: without rawJSON a large number would be rounded. */
function exact(node: Node): string {
  switch (node.kind) {
    case "object":
      return `{${node.members.map(({ key, value }) => `${key === "__proto__" ? '["__proto__"]' : quoted(key)}:${exact(value)}`).join()}}`;
    case "array":
      return `[${node.items.map(exact).join()}]`;
    case "string":
      return quoted(node.value);
    default:
      return loses(node) ? `(JSON as any).rawJSON(${quoted(node.text)})` : node.text;
  }
}

function inPython(p: Published): string {
  const { stream, key, headers, payload } = p;
  const text = typeof payload === "string";
  const node = headers === undefined ? undefined : parse(headers);
  const options = [...(key === undefined ? [] : [`key=${quoted(key)}`]), ...(node ? [`headers=${literal(node, { true: "True", false: "False", null: "None" })}`] : [])];
  const value = text ? quoted(payload) : `base64.b64decode("${base64(payload)}")`;
  return python(p, text ? [] : ["base64"], `        stream = tw.stream(${quoted(stream)}, type=tidewire.${text ? "text" : "binary"})
        await stream.publish(${[value, ...options].join(", ")})`);
}

/** JSON as a literal of Python, or of Go with types. */
function literal(node: Node, words: Record<string, string>, [list, object]: [string, string] = ["", ""]): string {
  const within = (inner: Node) => literal(inner, words, [list, object]);
  const [open, close] = list ? "{}" : "[]";
  switch (node.kind) {
    case "object":
      return `${object}{${node.members.map(({ key, value }) => `${quoted(key)}: ${within(value)}`).join(", ")}}`;
    case "array":
      return `${list}${open}${node.items.map(within).join(", ")}${close}`;
    case "string":
      return quoted(node.value);
    default:
      return words[node.text] ?? node.text;
  }
}

function inGo(p: Published): string {
  const { stream, key, headers, payload } = p;
  const text = typeof payload === "string";
  const node = headers === undefined ? undefined : parse(headers);
  const options = [
    ...(key === undefined ? [] : [`tidewire.Key(${quoted(key)})`]),
    ...(node ? [`tidewire.Headers(${literal(node, { null: "nil" }, ["[]any", "map[string]any"])})`] : []),
  ];
  const bytes = text ? `[]byte(${quoted(payload)})` : "payload";
  const decode = text ? "" : `\tpayload, err := base64.StdEncoding.DecodeString("${base64(payload)}")
	if err != nil {
		log.Fatal(err)
	}
`;
  return go(p, text ? [] : ["encoding/base64"], `	if _, err := c.Stream(${quoted(stream)}).Publish(context.Background(), ${[bytes, ...options].join(", ")}); err != nil {
		log.Fatal(err)
	}`, decode);
}
