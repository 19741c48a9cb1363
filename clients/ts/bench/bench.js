// Measures the client: publishes that are acknowledged, messages that a loop takes, or the memory of a client with one subscription.
// The stream is made if it does not exist.
import WebSocket from "ws";
import { connect, text } from "../dist/index.js";
import { count, inFlight, many, op, payload, report, stream, url } from "./arguments.js";

const address = new URL(url);
await fetch(`${address.protocol.replace("ws", "http")}//${address.host}/v1/streams/${stream}`, { method: "POST" });
const tw = connect(url, { WebSocket });
const s = tw.stream(stream, { codec: text });

if (op === "publish") {
  await s.publish(payload);
  const began = performance.now();
  await many(() => s.publish(payload));
  report(began);
} else if (op === "memory") {
  // The heap and the buffers, so those of the WebSocket too, but nothing of the first clients, which make what all share.
  // The memory of the process would be of no use: it shrinks when the heap is collected.
  const clients = [];
  const open = async (n) => {
    for (let i = 0; i < n; i++) {
      const client = connect(url, { WebSocket });
      clients.push(client);
      await client.stream(stream).subscribe().ready;
    }
    await new Promise((resolve) => setTimeout(resolve, 100)); // what has ended by then can be collected
    globalThis.gc();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const before = await open(50);
  const after = await open(count);
  console.log(JSON.stringify({ op, count, bytes_per_client: Math.round((after - before) / count) }));
  await Promise.all(clients.map((client) => client.close()));
} else {
  const sub = s.subscribe();
  await sub.ready;
  // The messages are there before the time begins.
  for (let left = count; left > 0; left -= 1_000) await s.publishAll(Array(Math.min(left, 1_000)).fill(payload));
  const began = performance.now();
  let taken = 0;
  const again = s.subscribe({ after: sub.position, credits: Math.max(inFlight, 2) });
  sub.close();
  for await (const m of again) if (m.value.length && ++taken === count) break;
  report(began);
}
await tw.close();
