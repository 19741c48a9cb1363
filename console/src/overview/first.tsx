import { Command } from "../parts/copy.js";
import { href } from "../router.js";
import { closed } from "../session.js";

/** The first steps of a new user, with commands to copy. */
export function FirstSteps() {
  const base = `${location.origin}/v1`;
  const token = closed.value ? ` -H "Authorization: Bearer $TOKEN"` : "";
  const json = `${token} -H 'Content-Type: application/json'`;
  return (
    <section aria-labelledby="first" class="card">
      <h2 id="first">First steps</h2>
      <ol class="steps">
        <li>
          <h3>Create a stream, and follow it</h3>
          <Command text={`curl -X POST${token} ${base}/streams/orders`} />
          <p>Then open <a href={href(["streams", "orders"], { live: 1 })}>orders, live</a> here.</p>
        </li>
        <li>
          <h3>Publish from a shell</h3>
          <Command text={`curl${json} -d '{"payload":"{\\"id\\":1}"}' ${base}/streams/orders/messages`} />
        </li>
        <li>
          <h3>Use it in a web page</h3>
          <Command text={`<script type="module">
import { connect } from "${location.origin}/client.js"
const orders = connect("${location.origin.replace(/^http/, "ws")}/ws"${closed.value ? ', { token: "YOUR TOKEN" }' : ""}).stream("orders")
for await (const m of orders.subscribe({ from: "start" })) console.log(m.position, m.value)
</script>`} />
        </li>
        <li>
          <h3>Measure what this machine can do</h3>
          <Command text="tidewire bench all --quick" />
        </li>
      </ol>
    </section>
  );
}
