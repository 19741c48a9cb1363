// What the types say. A test compiles this file; nothing runs it.
import { connect, tagged, type Message, type Page, type Stored, type Subscription } from "tidewire";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(equal: Equal<A, B>): void => void equal;

interface Order {
  id: number;
  total: number;
}

const tw = connect("ws://localhost/ws", { token: async ({ refused, signal }) => `${refused}${signal.aborted}`, timeout: "5s" });
const orders = tw.stream<Order>("orders");

export async function program(): Promise<void> {
  const stored = await orders.publish({ id: 1, total: 2 }, { key: "k", timeout: 500 });
  same<typeof stored, Stored>(true);
  // @ts-expect-error total is missing
  await orders.publish({ id: 1 });
  // @ts-expect-error there is no such option
  await orders.publish({ id: 1, total: 2 }, { delay: 5 });

  const sub = orders.subscribe({ after: 3 });
  same<typeof sub, Subscription<Order>>(true);
  for await (const m of sub) {
    same<typeof m, Message<Order>>(true);
    // @ts-expect-error a message is not changed
    m.position = 4;
  }
  for await (const page of orders.subscribe({ group: "g" }).pages(5)) {
    same<typeof page, Page<Order>>(true);
    same<(typeof page)[number]["value"] | undefined, Order | undefined>(true);
  }

  // A schema gives the type: with parse, or as a Standard Schema.
  const parsed = tw.stream("n", { schema: { parse: (value: unknown) => Number(value) } });
  for await (const m of parsed.subscribe()) same<typeof m.value, number>(true);
  const standard = { "~standard": { validate: (value: unknown) => ({ value: String(value) }) } };
  for await (const m of tw.stream("t", { schema: standard }).subscribe()) same<typeof m.value, string>(true);

  tw.queue<Order>("q").work(async (job) => {
    same<typeof job.value, Order>(true);
    if (job.attempt > 5) return job.dead("no");
    await fetch("http://x", { signal: job.signal });
  });

  await tw.events().decide(
    { taken: { query: tagged("a"), init: 0, apply: (n: number) => n + 1 }, names: { query: tagged("b"), init: [] as string[], apply: (all, e) => [...all, e.type] } },
    ({ taken, names }) => {
      same<typeof taken, number>(true);
      same<typeof names, string[]>(true);
      return { type: "X" };
    },
  );

  const room = await tw.room("r").join({ presence: true });
  room.on("presence", ({ members, joined }) => joined.every((name) => members.has(name)));
  // @ts-expect-error there is no such event
  room.on("absence", () => {});
  tw.on("state", (state) => {
    if (state.name === "waiting") same<typeof state.retryAt, Date>(true);
  });
  await using scoped = connect("ws://localhost/ws");
  scoped.close();
}
