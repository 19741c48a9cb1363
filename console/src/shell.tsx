import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { BenchScreen } from "./bench/screen.js";
import { AccessScreen } from "./access/screen.js";
import { ConnectionList } from "./connections/list.js";
import { ConnectionScreen } from "./connections/screen.js";
import { StoreList } from "./events/list.js";
import { EventScreen } from "./events/screen.js";
import { InspectorScreen } from "./inspector/screen.js";
import { overview } from "./overview/data.js";
import { OverviewScreen } from "./overview/screen.js";
import { Empty } from "./parts/notice.js";
import { QueueList } from "./queues/list.js";
import { QueueScreen } from "./queues/screen.js";
import { RoomList } from "./rooms/list.js";
import { RoomScreen } from "./rooms/screen.js";
import { href, place } from "./router.js";
import { closed, connection, user, wanted } from "./session.js";
import { SignIn, SignOut } from "./signin.js";
import { StreamList } from "./streams/list.js";
import { StreamScreen } from "./streams/screen.js";

interface Screen {
  /** The first part of its address after /console/. */
  path: string;
  title: string;
  /** What the address without a name shows. */
  All: ComponentType;
  /** What the address with a name shows, if there is such. */
  One?: ComponentType<{ name: string }>;
}

/** The screens, in the order of the navigation. */
const screens: Screen[] = [
  { path: "", title: "Overview", All: OverviewScreen },
  { path: "connections", title: "Connections", All: ConnectionList, One: ConnectionScreen },
  { path: "rooms", title: "Rooms", All: RoomList, One: RoomScreen },
  { path: "streams", title: "Streams", All: StreamList, One: StreamScreen },
  { path: "queues", title: "Queues", All: QueueList, One: QueueScreen },
  { path: "events", title: "Events", All: StoreList, One: EventScreen },
  { path: "inspector", title: "Inspector", All: InspectorScreen },
  { path: "bench", title: "Bench", All: BenchScreen },
  { path: "access", title: "Access", All: AccessScreen },
];

export function Shell() {
  const { parts } = place.value;
  const main = useRef<HTMLElement>(null);
  const view = parts.join("/") + (wanted.value && "!");
  const before = useRef(view);
  useEffect(() => {
    document.title = `${titleOf(parts)} · Tidewire`;
    if (before.current === view) return;
    before.current = view;
    main.current?.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [view]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current!.focus(); }}>Skip to the content</a>
      <header>
        <a class="brand" href={href([])}>
          <svg viewBox="0 0 32 32" aria-hidden="true"><path d="M3 12c4.3-6 8.7-6 13 0s8.7 6 13 0M3 21c4.3-6 8.7-6 13 0s8.7 6 13 0" /></svg>
          Tidewire
        </a>
        <nav aria-label="Screens">
          <ul>
            {screens.map(({ path, title }) => (
              <li key={path}><a href={href(path ? [path] : [])} aria-current={(parts[0] ?? "") === path ? (parts.length > 1 ? "true" : "page") : undefined}>{title}</a></li>
            ))}
          </ul>
        </nav>
        <div class="server">
          <p class={connection.value.good ? "state" : "state bad"} role="status">{connection.value.text}</p>
          {overview.value?.node && <p class="soft">{overview.value.node}</p>}
          {overview.value?.version && <p class="soft version">{overview.value.version}</p>}
          {closed.value && !wanted.value && <SignOut />}
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {wanted.value ? <SignIn /> : <View key={user.value} parts={parts} />}
      </main>
    </>
  );
}

/** The screen of an address, and the name in it. */
function found([path = "", name, more]: string[]): [Screen | undefined, string | undefined] {
  const screen = screens.find((one) => one.path === path);
  return more !== undefined || (name !== undefined && !screen?.One) ? [undefined, undefined] : [screen, name];
}

function View({ parts }: { parts: string[] }) {
  const [screen, name] = found(parts);
  if (screen?.One && name !== undefined) return <screen.One key={name} name={name} />;
  if (screen) return <screen.All />;
  return (
    <>
      <h1 tabIndex={-1}>No such page</h1>
      <Empty title="There is nothing at this address"><p>Go to the <a href={href([])}>overview</a>, or to another screen above.</p></Empty>
    </>
  );
}

function titleOf(parts: string[]): string {
  if (wanted.value) return "Sign in";
  const [screen, name] = found(parts);
  return name ?? screen?.title ?? "No such page";
}
