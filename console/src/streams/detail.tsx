import { bytesOf, base64, visible } from "../format/bytes.js";
import { layOut, parse } from "../format/json.js";
import { bytes, full } from "../format/numbers.js";
import { moment } from "../format/time.js";
import { Copy } from "../parts/copy.js";
import { DetailCard } from "../parts/detail.js";
import { useLoad } from "../parts/load.js";
import { Empty, Trouble } from "../parts/notice.js";
import { closed } from "../session.js";
import { languages } from "../parts/program.js";
import { codeOf } from "./code.js";
import { messageAt, type Shown } from "./messages.js";
import { Payload, views, type View } from "./payload.js";

interface DetailOptions {
  stream: string;
  position: number;
  view: View;
  look: (view: View) => void;
  close: () => void;
  /** Puts the message into the form that publishes. */
  again: (message: Shown) => void;
}

/** One message, with all that it has. It is read anew, so that its numbers are as they are stored. */
export function Detail({ stream, position, view, look, close, again }: DetailOptions) {
  const { value, error, loading, again: retry } = useLoad(async (signal) => ({ message: await messageAt(stream, position, signal) }), [stream, position]);
  return (
    <DetailCard title={`Message ${full(position)}`} what="message" close={close}>
      {error !== undefined && <Trouble error={error} retry={retry} title="The message could not be read" />}
      {value && !value.message && <Empty title="There is no message at this position"><p>Positions have gaps, and retention drops old messages.</p></Empty>}
      {value?.message && <Content stream={stream} message={value.message} view={view} look={look} again={again} />}
      {!value && loading && <p class="soft">Reading.</p>}
    </DetailCard>
  );
}

function Content({ stream, message: m, view, look, again }: Pick<DetailOptions, "stream" | "view" | "look" | "again"> & { message: Shown }) {
  const published = { origin: location.origin, stream, key: m.key, headers: m.headers, payload: m.payload, closed: !!closed.value };
  return (
    <>
      <table class="facts">
        <tbody>
          <tr><th scope="row">Time</th><td><time dateTime={m.time}>{moment(m.time)}</time></td></tr>
          <tr><th scope="row">Key</th><td>{m.key === undefined ? "none" : visible(m.key)}</td></tr>
          <tr><th scope="row">Size</th><td>{bytes(bytesOf(m.payload).length)}</td></tr>
        </tbody>
      </table>
      <Body message={m} view={view} look={look} />
      <p class="actions">
        <Copy label="Copy payload" text={() => (typeof m.payload === "string" ? m.payload : base64(m.payload))} />
        {languages.map((language) => <Copy key={language} label={language} of="that publishes this message" text={() => codeOf(language, published)} />)}
        {typeof m.payload === "string" && <button type="button" onClick={() => again(m)}>Publish again …</button>}
      </p>
    </>
  );
}

/** The headers and the payload of a message. */
export function Body({ message: m, view, look }: Pick<DetailOptions, "view" | "look"> & { message: Shown }) {
  const headers = m.headers === undefined ? undefined : parse(m.headers);
  return (
    <>
      {headers && (
        <>
          <h3>Headers</h3>
          <pre class="payload" tabIndex={0}>{layOut(headers).map(({ kind, text }, i) => (kind === "mark" ? text : <span key={i} class={kind}>{text}</span>))}</pre>
        </>
      )}
      <div class="head">
        <h3>Payload</h3>
        <ViewChoice view={view} look={look} name="detail-view" />
      </div>
      <Payload payload={m.payload} view={view} />
    </>
  );
}

/** Chooses how payloads are shown. */
export function ViewChoice({ view, look, name }: { view: View; look: (view: View) => void; name: string }) {
  return (
    <fieldset class="choice">
      <legend class="hidden">Show payloads as</legend>
      {views.map((one) => (
        <label key={one}><input type="radio" name={name} checked={one === view} onChange={() => look(one)} /><span>{one === "json" ? "JSON" : one === "hex" ? "Hex" : "Text"}</span></label>
      ))}
    </fieldset>
  );
}
