// Dead letters for tests in a browser.
import { v1 } from "./server.js";

const part = encodeURIComponent;

/** Creates a queue with dead letters: `reason` gives each message's. Messages are `payload` with more fields. */
export async function kill(base, queue, messages, reason, token) {
  const path = `queues/${part(queue)}`;
  await v1(base, "POST", path, {}, token);
  for (let i = 0; i < messages.length; i += 500) await v1(base, "POST", `${path}/messages`, { messages: messages.slice(i, i + 500) }, token);
  for (let left = messages.length; left > 0; ) {
    const { deliveries } = await v1(base, "POST", `${path}/receive?max=500&wait_ms=2000`, undefined, token);
    for (const why of new Set(deliveries.map(({ position }) => reason(position)))) {
      const some = deliveries.filter(({ position }) => reason(position) === why).map(({ delivery }) => delivery);
      await v1(base, "POST", `${path}/nack`, { deliveries: some, dead: true, ...(why && { reason: why }) }, token);
    }
    left -= deliveries.length;
  }
}
