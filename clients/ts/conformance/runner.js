// The runner of the conformance suite: it maps commands to calls of the library, and reports what the library says.
// clients/conformance/README.md has the commands and events.
import { createInterface } from "node:readline";
import WebSocket from "ws";
import { connect, Dead, Retry, text, TidewireError } from "../dist/index.js";

const clients = new Map(); // by name of the client
const things = new Map(); // iterations, workers and rooms, by their name

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const event = (on, name, fields) => write({ on, event: name, ...fields });
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const client = (c) => clients.get(c.client);

process.on("unhandledRejection", (error) => event("process", "unhandled", { message: String(error?.message ?? error) }));
process.on("uncaughtException", (error) => event("process", "unhandled", { message: String(error?.message ?? error) }));

function problem(error) {
  if (error instanceof TidewireError) {
    const { code, retryable, message, oldest, last, partition, position, size, eventType: event_type } = error;
    const lost = error.lost && [...error.lost];
    return { code, retryable, message, oldest, last, partition, position, size, event_type, lost };
  }
  if (error?.name === "AbortError") return { code: "cancelled", retryable: false, message: error.message };
  return { code: "application", retryable: false, message: String(error?.message ?? error) };
}

const callOptions = (c) => ({
  timeout: c.timeout_ms,
  signal: c.cancel_ms === undefined ? undefined : cancelAfter(c.cancel_ms),
});

function cancelAfter(ms) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), ms);
  return controller.signal;
}

function tokens(c) {
  if (!Array.isArray(c.token)) return c.token;
  const left = [...c.token];
  return ({ refused }) => {
    event(c.client, "token", { refused });
    return left.length > 1 ? left.shift() : left[0];
  };
}

// The program of an iteration: it takes the next item when it is not paused.
class Program {
  constructor(pauseMs) {
    this.pauseMs = pauseMs;
    this.open = Promise.resolve();
    this.resume = () => {};
  }
  pause() {
    this.open = new Promise((resolve) => (this.resume = resolve));
  }
  async turn() {
    if (this.pauseMs) await sleep(this.pauseMs);
    await this.open;
  }
}

/** Iterates, and again after each error that `caught` takes. */
async function iterate(as, items, program, each, caught) {
  for (;;) {
    let error = null;
    try {
      for await (const item of items()) {
        await each(item);
        await program.turn();
      }
    } catch (e) {
      if (await caught?.(e)) continue;
      error = problem(e);
    }
    return event(as, "end", { error });
  }
}

const number = {
  encode: (value) => JSON.stringify(value),
  decode(payload) {
    const value = JSON.parse(payload);
    if (typeof value !== "number") throw new TypeError("not a number");
    return value;
  },
};
const codecs = { json: undefined, text, number };

const commands = {
  open(c) {
    const tw = connect(c.url, {
      WebSocket,
      token: tokens(c),
      timeout: c.timeout_ms,
      batch: c.batch,
      maxPending: c.max_pending,
      maxPendingBytes: c.max_pending_bytes,
    });
    clients.set(c.client, tw);
    tw.on("state", (state) => event(c.client, "state", { state: state.name, retry_ms: state.retryIn, error: state.error && problem(state.error) }));
    return {};
  },

  async close(c) {
    await client(c).close();
    return {};
  },

  publish(c) {
    const stream = client(c).stream(c.stream);
    const options = { ...callOptions(c), key: c.key, headers: c.headers };
    return c.values ? stream.publishAll(c.values, options) : stream.publish(c.value, options);
  },

  enqueue(c) {
    const queue = client(c).queue(c.queue);
    const { key, headers, delay_ms: delay, priority, unique_key: uniqueKey, unique_ms: uniqueFor } = c;
    const options = { ...callOptions(c), key, headers, delay, priority, uniqueKey, uniqueFor };
    return c.values ? queue.enqueueAll(c.values, options) : queue.enqueue(c.value, options);
  },

  append: (c) => client(c).events(c.store).append(c.events, { ...callOptions(c), condition: c.condition }),

  async query(c) {
    const events = [];
    for await (const e of client(c).events(c.store).query(c.query ?? { items: [] }, { ...callOptions(c), after: c.after })) events.push(e);
    return { events };
  },

  project: (c) => client(c).events(c.store).project(c.queries, callOptions(c)),

  decide(c) {
    const count = { query: c.query, init: 0, apply: (n) => n + 1 };
    return client(c)
      .events(c.store)
      .decide(
        { count },
        (states) => {
          if (states.count >= c.max) throw new Error("there are as many events as may be");
          return [c.event];
        },
        { ...callOptions(c), attempts: c.attempts },
      );
  },

  async subscribe(c) {
    const { after, at, from, group, share, keys, headers, credits, as } = c;
    const subscription = client(c)
      .stream(c.stream, { codec: codecs[c.codec ?? "json"] })
      .subscribe({
        ...callOptions(c), after, at, from, group, share, keys, headers, credits,
        onGap: c.on_gap === "skip" ? (gap) => event(as, "gap", gap) : undefined,
        onInvalid: c.on_invalid === "report" ? ({ received }) => event(as, "invalid", { position: received.position }) : undefined,
        onAssigned: (partitions) => event(as, "assigned", { partitions }),
        onRevoked: (partitions) => event(as, "revoked", { partitions }),
      });
    const program = new Program(c.pause_ms);
    things.set(as, { subscription, program, close: () => subscription.close() });
    await subscription.ready;
    const position = share ? undefined : subscription.position;
    const show = ({ position, value, key, headers, partition }) => event(as, "message", { position, value, key, headers, partition });
    const showPage = (page) => {
      page.forEach(show);
      event(as, "page", { positions: page.map((m) => m.position) });
    };
    const caught = async ({ code, received, partition, oldest }) => {
      if (c.on_invalid === "catch" && received) event(as, "invalid", { position: received.position });
      else if (c.on_gap === "commit" && oldest) {
        event(as, "gap", { code, partition, oldest });
        await subscription.commit(oldest - 1, partition);
      } else return false;
      return true;
    };
    if (c.pages) void iterate(as, () => subscription.pages(c.pages), program, showPage, caught);
    else void iterate(as, () => subscription, program, show, caught);
    return { position };
  },

  async follow(c) {
    const subscription = client(c).events(c.store).subscribe(c.query, { ...callOptions(c), after: c.after, credits: c.credits });
    const program = new Program(c.pause_ms);
    things.set(c.as, { subscription, program, close: () => subscription.close() });
    await subscription.ready;
    const start = subscription.position;
    void iterate(c.as, () => subscription, program, ({ position, type, tags, data }) => event(c.as, "event", { position, type, tags, data }));
    return { position: start };
  },

  async commit(c) {
    return { position: await things.get(c.on).subscription.commit(c.position, c.partition) };
  },

  pause(c) {
    things.get(c.on).program.pause();
    return {};
  },

  resume(c) {
    things.get(c.on).program.resume();
    return {};
  },

  unsubscribe(c) {
    things.get(c.on).close();
    return {};
  },

  async work(c) {
    const holds = [];
    const outcomes = [c.handle ?? "ack"].flat();
    let jobs = 0;
    const handler = async (job) => {
      const outcome = outcomes[Math.min(jobs++, outcomes.length - 1)];
      event(c.as, "job", { position: job.position, attempt: job.attempt, value: job.value });
      job.signal.addEventListener("abort", () => event(c.as, "cancelled", { position: job.position }));
      if (c.work_ms) await sleep(c.work_ms);
      if (outcome === "hold") await new Promise((resolve) => holds.push(resolve));
      if (outcome === "fail") throw new Error("the handler has failed");
      if (outcome === "retry") throw new Retry(c.retry_ms ?? 0, "later");
      if (outcome === "dead") throw new Dead("the handler gave up");
    };
    const worker = client(c)
      .queue(c.queue)
      .work(handler, {
        ...callOptions(c),
        concurrency: c.concurrency,
        lease: c.lease_ms,
        onDone: (job, outcome) => event(c.as, "done", { position: job.position, outcome }),
      });
    things.set(c.as, { worker, holds });
    worker.done.then(
      () => event(c.as, "end", { error: null }),
      (error) => event(c.as, "end", { error: problem(error) }),
    );
    await worker.ready;
    return {};
  },

  release(c) {
    for (const resolve of things.get(c.on).holds.splice(0)) resolve();
    return {};
  },

  async stop(c) {
    await things.get(c.on).worker.stop({ drain: c.drain_ms });
    return {};
  },

  async join(c) {
    const { history, after, presence, user } = c;
    const room = await client(c).room(c.room).join({ ...callOptions(c), history, after, presence, user });
    const program = new Program(c.pause_ms);
    things.set(c.as, { room, program, close: () => room.leave() });
    const position = room.position;
    room.on("presence", ({ members, joined, left }) => event(c.as, "presence", { members: [...members].sort(), joined, left }));
    room.on("gap", ({ missed }) => event(c.as, "gap", { missed: missed ?? null }));
    room.on("history_lost", ({ last, upTo }) => event(c.as, "history_lost", { last, up_to: upTo }));
    void iterate(c.as, () => room.messages, program, ({ user: from, text: said, position: at }) => event(c.as, "chat", { user: from, text: said, position: at }));
    return { position };
  },

  chat: (c) => things.get(c.on).room.chat(c.text, callOptions(c)),

  members: (c) => ({ members: [...things.get(c.on).room.members].sort() }),

  async leave(c) {
    await things.get(c.on).room.leave();
    return {};
  },

  exit() {
    process.exit(0);
  },
};

async function run(line) {
  const command = JSON.parse(line);
  const { id } = command;
  try {
    write({ id, ok: (await commands[command.do](command)) ?? {} });
  } catch (error) {
    write({ id, error: problem(error) });
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => void run(line));
lines.on("close", () => process.exit(0));

