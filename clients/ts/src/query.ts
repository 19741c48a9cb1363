/** An event matches if it has one of the types, and all of the tags. */
export interface QueryItem {
  types?: string[];
  tags?: string[];
}

/** Which events: those that match one of the items. Without items, all. */
export interface Query {
  items: QueryItem[];
}

/** A query that is made step by step. */
export class QueryBuilder implements Query {
  constructor(readonly items: QueryItem[]) {}

  /** Only events of one of these types. */
  types(...types: string[]): QueryBuilder {
    return new QueryBuilder(this.items.map((item) => ({ ...item, types })));
  }

  /** Also the events of another query. */
  or(other: Query): QueryBuilder {
    return new QueryBuilder([...this.items, ...other.items]);
  }
}

/** Events that have all of these tags. */
export const tagged = (...tags: string[]): QueryBuilder => new QueryBuilder([{ tags }]);

/** Events of one of these types. */
export const typed = (...types: string[]): QueryBuilder => new QueryBuilder([{ types }]);

/** Whether an event matches a query. */
export function matches({ items }: Query, event: { type: string; tags: readonly string[] }): boolean {
  if (!items.length) return true;
  return items.some(({ types, tags }) => (!types?.length || types.includes(event.type)) && (tags ?? []).every((tag) => event.tags.includes(tag)));
}

/** The query of the events that match one of the queries. */
export function union(queries: readonly Query[]): Query {
  return { items: queries.some(({ items }) => !items.length) ? [] : queries.flatMap(({ items }) => items) };
}
