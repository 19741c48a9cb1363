import { useEffect, useRef } from "preact/hooks";
import { overview } from "./overview/data.js";
import { OverviewScreen } from "./overview/screen.js";
import { Empty } from "./parts/notice.js";
import { QueueList } from "./queues/list.js";
import { QueueScreen } from "./queues/screen.js";
import { href, place } from "./router.js";
import { closed, connection, user, wanted } from "./session.js";
import { SignIn, SignOut } from "./signin.js";
import { StreamList } from "./streams/list.js";
import { StreamScreen } from "./streams/screen.js";

/** The screens in the navigation. */
const screens = [
  { path: "", title: "Overview" },
  { path: "streams", title: "Streams" },
  { path: "queues", title: "Queues" },
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
        {wanted.value ? <SignIn /> : <Screen key={user.value} parts={parts} />}
      </main>
    </>
  );
}

function Screen({ parts }: { parts: string[] }) {
  const [screen, name, more] = parts;
  if (screen === undefined) return <OverviewScreen />;
  if (screen === "streams" && name === undefined) return <StreamList />;
  if (screen === "streams" && more === undefined) return <StreamScreen key={name} name={name!} />;
  if (screen === "queues" && name === undefined) return <QueueList />;
  if (screen === "queues" && more === undefined) return <QueueScreen key={name} name={name!} />;
  return (
    <>
      <h1 tabIndex={-1}>No such page</h1>
      <Empty title="There is nothing at this address"><p>Go to the <a href={href([])}>overview</a>, to the <a href={href(["streams"])}>streams</a>, or to the <a href={href(["queues"])}>queues</a>.</p></Empty>
    </>
  );
}

function titleOf([screen = "", name, more]: string[]): string {
  if (wanted.value) return "Sign in";
  const found = more === undefined && screens.find(({ path }) => path === screen);
  return found ? name ?? found.title : "No such page";
}
