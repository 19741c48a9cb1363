// The same with nats.js on JetStream: a stream on disk, and an ordered consumer.
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { count, many, op, payload, report, stream, url } from "./arguments.js";

const nc = await connect({ servers: url });
const manager = await jetstreamManager(nc);
const js = jetstream(nc);
await manager.streams.add({ name: stream, subjects: [stream], storage: "file" }).catch(() => {});
const data = new TextEncoder().encode(payload);

if (op === "publish") {
  await js.publish(stream, data);
  const began = performance.now();
  await many(() => js.publish(stream, data));
  report(began);
} else {
  const { state } = await manager.streams.info(stream);
  await many(() => js.publish(stream, data));
  const began = performance.now();
  const consumer = await js.consumers.get(stream, { opt_start_seq: state.last_seq + 1, deliver_policy: "by_start_sequence" });
  let taken = 0;
  for await (const m of await consumer.consume()) if (m.string().length && ++taken === count) break;
  report(began);
}
await nc.close();
