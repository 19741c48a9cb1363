import { useEffect, useRef, useState } from "preact/hooks";
import { text } from "../api.js";
import { useLoad } from "../parts/load.js";
import { Trouble } from "../parts/notice.js";
import { change, place } from "../router.js";
import { templatesOf, textOf, type Wire } from "./wire.js";

/** Sends a frame: a template that the address chooses, filled in, or any text. */
export function Send({ wire, again }: { wire: Wire; again: { text: string } | undefined }) {
  const templates = useLoad(async (signal) => templatesOf(await text("asyncapi.json", { signal })), []);
  const area = useRef<HTMLTextAreaElement>(null);
  const id = useRef(0);
  const [said, say] = useState("");
  const chosen = place.value.query.get("message") ?? "";
  const template = templates.value?.find(({ name }) => name === chosen);
  const open = wire.state.value.name === "open";
  const fill = () => {
    if (template) area.current!.value = textOf(template, ++id.current);
  };
  useEffect(fill, [template?.name]);
  useEffect(() => {
    if (!again) return;
    area.current!.value = again.text;
    area.current!.focus();
  }, [again]);
  const submit = (event: Event) => {
    event.preventDefault();
    if (!open) return say("Connect first.");
    say("");
    wire.send(area.current!.value);
    fill(); // with the next id
  };
  return (
    <section class="card" aria-labelledby="send">
      <h2 id="send">Send a message</h2>
      {templates.error !== undefined && <Trouble error={templates.error} retry={templates.again} title="The templates could not be read" />}
      <form class="block" onSubmit={submit}>
        <div class="bar">
          <label>Template
            <select value={chosen} onChange={(event) => change({ message: event.currentTarget.value }, { replace: true })}>
              <option value="">none</option>
              {templates.value?.map(({ name, type }) => <option key={name} value={name}>{type}: {name}</option>)}
            </select>
          </label>
          {template && <p class="soft">{template.summary}</p>}
        </div>
        <label class="block">Frame, as it is sent <textarea ref={area} rows={8} spellcheck={false} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && submit(event)} /></label>
        <p class="bar"><button class="main" aria-disabled={!open}>Send</button><span class="soft">or Ctrl+Enter</span></p>
        <p role="alert" class="bad">{said}</p>
      </form>
    </section>
  );
}
