// The frames of programs that are copied: each connects, does one thing, and ends.

export const languages = ["curl", "TypeScript", "Python", "Go"] as const;
export type Language = (typeof languages)[number];

/** Where a program connects. */
export interface Server {
  origin: string;
  /** Whether the server wants a token: it is never written into the program. */
  closed: boolean;
}

export const quoted = JSON.stringify;
const socket = (origin: string) => `${origin.replace(/^http/, "ws")}/ws`;

/** A text for a shell, which changes nothing between single quotes. */
export const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Posts a body to a path of /v1. */
export function curl({ origin, closed }: Server, path: string, body: string): string {
  const token = closed ? `  -H "Authorization: Bearer $TOKEN" \\\n` : "";
  return `curl ${shell(`${origin}/v1/${path}`)} \\\n${token}  -H 'Content-Type: application/json' \\\n  -d ${shell(body)}`;
}

/** The statements use tw. */
export function typescript({ origin, closed }: Server, names: string, statements: string): string {
  return `import { ${names} } from "tidewire";

const tw = connect(${quoted(socket(origin))}${closed ? ", { token: process.env.TOKEN }" : ""});
${statements}
await tw.close();`;
}

/** The statements use tw, and are indented by eight spaces. */
export function python({ origin, closed }: Server, modules: string[], statements: string): string {
  const imports = ["asyncio", ...modules, ...(closed ? ["os"] : [])].sort().map((name) => `import ${name}`).join("\n");
  return `${imports}

import tidewire


async def main() -> None:
    async with tidewire.connect(${quoted(socket(origin))}${closed ? `, token=os.environ["TOKEN"]` : ""}) as tw:
${statements}


asyncio.run(main())`;
}

/** The statements use c, and are indented by a tab; so is what comes before. */
export function go({ origin, closed }: Server, packages: string[], statements: string, before = ""): string {
  const imports = ["context", ...packages, "log", ...(closed ? ["os"] : [])].sort().map((name) => `\t"${name}"`).join("\n");
  return `package main

import (
${imports}

	"github.com/tidewire/tidewire/clients/go"
)

func main() {
${before}	c, err := tidewire.Open(${quoted(socket(origin))}, tidewire.Options{${closed ? `APIKey: os.Getenv("TOKEN")` : ""}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
${statements}
}`;
}
