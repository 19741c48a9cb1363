import type { ComponentChildren } from "preact";
import { base64, bytesOf, visible } from "../format/bytes.js";
import { bytes, full } from "../format/numbers.js";
import { moment } from "../format/time.js";
import { Copy } from "../parts/copy.js";
import { DetailCard } from "../parts/detail.js";
import { Empty } from "../parts/notice.js";
import { change, place } from "../router.js";
import { Body } from "../streams/detail.js";
import { positionOf } from "../streams/look.js";
import type { Shown } from "../streams/messages.js";
import { views, type View } from "../streams/payload.js";
import type { Letter } from "./data.js";

/** Which message is open, and how payloads are shown: both are in the address. */
export function useOpened() {
  const { query } = place.value;
  const opened = positionOf(query.get("open"));
  return {
    view: views.find((one) => one === query.get("view")) ?? "json",
    look: (next: View) => change({ view: next === "json" ? undefined : next }, { replace: true }),
    opened,
    open: (position: number) => change({ open: position === opened ? undefined : position }, { replace: true }),
    close: () => {
      document.querySelector<HTMLElement>("tr.opened button")?.focus();
      change({ open: undefined }, { replace: true });
    },
  };
}

interface DetailOptions {
  position: number;
  message: Shown | Letter | undefined;
  /** Why there may be no message. */
  gone: string;
  view: View;
  look: (view: View) => void;
  close: () => void;
  children?: ComponentChildren;
}

/** One message of a queue. The children are what can be done with it. */
export function Detail({ position, message: m, gone, view, look, close, children }: DetailOptions) {
  return (
    <DetailCard title={`Message ${full(position)}`} what="message" close={close}>
      {!m && <Empty title="This message is not here"><p>{gone}</p></Empty>}
      {m && (
        <>
          <table class="facts">
            <tbody>
              {"attempts" in m && (
                <>
                  <tr><th scope="row">Reason</th><td>{m.reason === undefined ? "none" : visible(m.reason)}</td></tr>
                  <tr><th scope="row">Attempts</th><td>{full(m.attempts)}</td></tr>
                  <tr><th scope="row">Died</th><td>{m.died === undefined ? "not known" : <time dateTime={m.died}>{moment(m.died)}</time>}</td></tr>
                </>
              )}
              <tr><th scope="row">Stored</th><td><time dateTime={m.time}>{moment(m.time)}</time></td></tr>
              <tr><th scope="row">Key</th><td>{m.key === undefined ? "none" : visible(m.key)}</td></tr>
              <tr><th scope="row">Size</th><td>{bytes(bytesOf(m.payload).length)}</td></tr>
            </tbody>
          </table>
          <Body message={m} view={view} look={look} />
          <p class="actions">
            <Copy label="Copy payload" text={() => (typeof m.payload === "string" ? m.payload : base64(m.payload))} />
            {children}
          </p>
        </>
      )}
    </DetailCard>
  );
}
