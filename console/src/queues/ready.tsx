import { useEffect, useRef } from "preact/hooks";
import { full } from "../format/numbers.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { ViewChoice } from "../streams/detail.js";
import { Beside } from "../streams/look.js";
import { MessageTable } from "../streams/table.js";
import { peek, type Stats } from "./data.js";
import { Detail, useOpened } from "./detail.js";

/** The messages that are delivered next. They stay in the queue. */
export function Ready({ is }: { is: Stats }) {
  const { value, error, again } = useLoad((signal) => peek(is.queue, signal), [is.queue]);
  const { view, look, opened, open, close } = useOpened();
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) again();
    first.current = false;
  }, [is.ready, is.head]);
  const message = value?.find(({ position }) => position === opened);
  const detail = opened !== undefined && value && <Detail position={opened} message={message} gone="It is not among the next messages: it was delivered, or is further back." view={view} look={look} close={close} />;
  return (
    <>
      <div class="bar">
        <p class="soft" role="status">{value?.length ? `The next ${full(value.length)}, as they are delivered. Looking at them changes nothing.` : ""}</p>
        {!!value?.length && <ViewChoice view={view} look={look} name="view" />}
      </div>
      <Beside detail={detail}>
        {error !== undefined && <Trouble error={error} retry={again} title="The messages could not be read" />}
        {value && value.length === 0 && <Empty title="No message is ready"><p>Enqueue one below, or with <code>tidewire queue enqueue</code>.</p></Empty>}
        {!!value?.length && <MessageTable messages={value} view={view} opened={opened} open={open} label="Ready messages" />}
        {!value && error === undefined && <p class="soft">Reading.</p>}
      </Beside>
    </>
  );
}
