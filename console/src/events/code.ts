// A query as a program that reads the events which match.
import type { QueryItem } from "tidewire";
import { curl, go, languages, python, quoted, typescript, type Server } from "../parts/program.js";

export const forms = ["JSON", ...languages] as const;
export type Form = (typeof forms)[number];

/** A query, and where it is asked. */
export interface Asked extends Server {
  store: string;
  items: QueryItem[];
}

const list = (texts: readonly string[] | undefined) => (texts ?? []).map((text) => quoted(text)).join(", ");

export function codeOf(form: Form, a: Asked): string {
  const { store, items } = a;
  switch (form) {
    case "JSON":
      return JSON.stringify({ store, query: { items } }, null, 2);
    case "curl":
      return curl(a, "events/query", quoted({ store, query: { items } }));
    case "TypeScript":
      return typescript(a, "connect", `for await (const event of tw.events(${quoted(store)}).query({ items: ${quoted(items)} })) {
  console.log(event.position, event.type, event.tags, event.data);
}`);
    case "Python": {
      const parts = items.map(({ types, tags }) => (types ? `tidewire.types(${list(types)})${tags ? `.tagged(${list(tags)})` : ""}` : `tidewire.tagged(${list(tags)})`));
      return python(a, [], `        query = ${parts.join(" | ") || "tidewire.everything()"}
        async for event in tw.events(${quoted(store)}).query(query):
            print(event.position, event.type, event.tags, event.data)`);
    }
    case "Go": {
      const texts = (name: string, some: readonly string[] | undefined) => (some ? [`${name}: []string{${list(some)}}`] : []);
      const parts = items.map(({ types, tags }) => `{${[...texts("Types", types), ...texts("Tags", tags)].join(", ")}}`);
      const query = parts.length ? `tidewire.Query{Items: []tidewire.Item{${parts.join(", ")}}}` : "tidewire.Query{}";
      return go(a, ["fmt"], `	query := ${query}
	for event, err := range c.Events(${quoted(store)}).Query(context.Background(), query) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Position, event.Type, event.Tags, string(event.Data))
	}`);
    }
  }
}
