import type { ComponentChildren } from "preact";
import { Empty } from "../parts/notice.js";
import type { Info } from "./messages.js";
import type { View } from "./payload.js";

/** A position of the address, or undefined. */
export function positionOf(text: string | null): number | undefined {
  const n = Number(text);
  return text && Number.isSafeInteger(n) && n >= 0 ? n : undefined;
}

/** The options of both ways of looking at messages. */
export interface Look {
  is: Info;
  view: View;
  look: (view: View) => void;
  opened: number | undefined;
  open: (position: number) => void;
  /** The message that is open, beside the others. */
  detail: ComponentChildren;
}

/** No message is here yet. */
export function NoMessages({ children }: { children?: string }) {
  return <Empty title={children ?? "There is no message yet"}><p>Publish one below, or with <code>tidewire stream publish</code>.</p></Empty>;
}

/** Messages, and beside them the one that is open. */
export function Beside({ label = "Messages", detail, children }: { label?: string; detail: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class={detail ? "browser with" : "browser"}>
      <section aria-label={label}>{children}</section>
      {detail}
    </div>
  );
}
