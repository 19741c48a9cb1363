// A message as a program that publishes it.
import { base64 } from "../format/bytes.js";
import { loses, parse, type Node } from "../format/json.js";
import { part } from "../format/path.js";

/** A message, and where it is published. */
export interface Published {
  origin: string;
  stream: string;
  key: string | undefined;
  headers: string | undefined;
  payload: string | Uint8Array;
  /** Whether the server wants a token: it is never written into the program. */
  closed: boolean;
}

export const languages = ["curl", "TypeScript", "Python", "Go"] as const;
export type Language = (typeof languages)[number];

const quoted = JSON.stringify;
const socket = (origin: string) => `${origin.replace(/^http/, "ws")}/ws`;

export function codeOf(language: Language, p: Published): string {
  switch (language) {
    case "curl":
      return curl(p);
    case "TypeScript":
      return typescript(p);
    case "Python":
      return python(p);
    case "Go":
      return go(p);
  }
}

/** A text for a shell, which changes nothing between single quotes. */
export const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

function curl({ origin, stream, key, headers, payload, closed }: Published): string {
  const fields = [
    ...(key === undefined ? [] : [`"key":${quoted(key)}`]),
    ...(headers === undefined ? [] : [`"headers":${headers}`]),
    typeof payload === "string" ? `"payload":${quoted(payload)}` : `"payload_base64":"${base64(payload)}"`,
  ];
  const token = closed ? `  -H "Authorization: Bearer $TOKEN" \\\n` : "";
  return `curl ${shell(`${origin}/v1/streams/${part(stream)}/messages`)} \\\n${token}  -H 'Content-Type: application/json' \\\n  -d ${shell(`{${fields.join()}}`)}`;
}

function typescript({ origin, stream, key, headers, payload, closed }: Published): string {
  const text = typeof payload === "string";
  const value = text ? quoted(payload) : `Uint8Array.from(atob("${base64(payload)}"), (c) => c.charCodeAt(0))`;
  const node = headers === undefined ? undefined : parse(headers);
  const options = [...(key === undefined ? [] : [`key: ${quoted(key)}`]), ...(node ? [`headers: ${exact(node)}`] : [])];
  return `import { connect, ${text ? "text" : "bytes"} } from "tidewire";

const tw = connect(${quoted(socket(origin))}${closed ? ", { token: process.env.TOKEN }" : ""});
await tw.stream(${quoted(stream)}, { codec: ${text ? "text" : "bytes"} }).publish(${value}${options.length ? `, { ${options.join(", ")} }` : ""});
await tw.close();`;
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

function python({ origin, stream, key, headers, payload, closed }: Published): string {
  const text = typeof payload === "string";
  const node = headers === undefined ? undefined : parse(headers);
  const options = [...(key === undefined ? [] : [`key=${quoted(key)}`]), ...(node ? [`headers=${literal(node, { true: "True", false: "False", null: "None" })}`] : [])];
  const value = text ? quoted(payload) : `base64.b64decode("${base64(payload)}")`;
  const imports = ["asyncio", ...(text ? [] : ["base64"]), ...(closed ? ["os"] : [])].sort().map((name) => `import ${name}`).join("\n");
  return `${imports}

import tidewire


async def main() -> None:
    async with tidewire.connect(${quoted(socket(origin))}${closed ? `, token=os.environ["TOKEN"]` : ""}) as tw:
        stream = tw.stream(${quoted(stream)}, type=tidewire.${text ? "text" : "binary"})
        await stream.publish(${[value, ...options].join(", ")})


asyncio.run(main())`;
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

function go({ origin, stream, key, headers, payload, closed }: Published): string {
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
  const imports = ["context", ...(text ? [] : ["encoding/base64"]), "log", ...(closed ? ["os"] : [])].map((name) => `\t"${name}"`).join("\n");
  return `package main

import (
${imports}

	"github.com/tidewire/tidewire/clients/go"
)

func main() {
${decode}	c, err := tidewire.Open(${quoted(socket(origin))}, tidewire.Options{${closed ? `APIKey: os.Getenv("TOKEN")` : ""}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Stream(${quoted(stream)}).Publish(context.Background(), ${[bytes, ...options].join(", ")}); err != nil {
		log.Fatal(err)
	}
}`;
}
