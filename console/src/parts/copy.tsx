import { useEffect, useRef, useState } from "preact/hooks";

/** A button that copies a text, and says so for a moment. */
export function Copy({ text, label = "Copy", of }: { text: string | (() => string); label?: string; of?: string }) {
  const [said, say] = useState("");
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    const done = await write(typeof text === "string" ? text : text());
    say(done ? "Copied" : "Not copied: select the text instead");
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => say(""), 2000);
  };
  return (
    <button type="button" class="copy" onClick={copy} aria-label={of && `${label} ${of}`}>
      <span aria-hidden={said ? "true" : undefined} class={said ? "under" : ""}>{label}</span>
      <span role="status" class="over">{said}</span>
    </button>
  );
}

/** The clipboard of a page is missing over http, except on the machine itself. */
async function write(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** A command with a button that copies it. */
export function Command({ text, of = text }: { text: string; of?: string }) {
  return (
    <div class="command">
      <pre tabIndex={0}>{text}</pre>
      <Copy text={text} of={of} />
    </div>
  );
}
