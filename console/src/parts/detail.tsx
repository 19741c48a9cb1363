import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface DetailOptions {
  title: string;
  /** What it is, for the button that closes it. */
  what: string;
  close: () => void;
  children: ComponentChildren;
}

/** One message or event, beside the others. It is focused when it opens. */
export function DetailCard({ title, what, close, children }: DetailOptions) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
    heading.current?.scrollIntoView({ block: "nearest" });
  }, [title]);
  return (
    <section class="detail card" aria-labelledby="detail" onKeyDown={(event) => event.key === "Escape" && close()}>
      <div class="head">
        <h2 id="detail" ref={heading} tabIndex={-1}>{title}</h2>
        <button type="button" onClick={close} aria-label={`Close the ${what}`}>Close</button>
      </div>
      {children}
    </section>
  );
}
