import { createContext, useContext, useEffect, useRef, useState } from "react";
import type { Chat, JoinOptions, Message, Room, State, SubscribeOptions, Tidewire, Typed } from "tidewire";

/** The client for all components below: `<TidewireContext.Provider value={tw}>`. */
export const TidewireContext = createContext<Tidewire | undefined>(undefined);

/** The client of the context. */
export function useTidewire(): Tidewire {
  const tw = useContext(TidewireContext);
  if (!tw) throw new Error("there is no client: put <TidewireContext.Provider value={tw}> around this component");
  return tw;
}

/** What the connection does now. */
export function useConnection(): State {
  const tw = useTidewire();
  const [state, setState] = useState(tw.state);
  useEffect(() => {
    setState(tw.state);
    return tw.on("state", setState);
  }, [tw]);
  return state;
}

export interface StreamHook<T> {
  /** The last messages, the newest at the end. */
  messages: readonly Message<T>[];
  /** Why the subscription has ended. */
  error: unknown;
}

/** The last messages of a stream: as many as `keep` says, 100 unless given. Another name or start subscribes anew. */
export function useStream<T = any>(name: string, options: SubscribeOptions & Typed<T> & { keep?: number } = {}): StreamHook<T> {
  const tw = useTidewire();
  const [hook, setHook] = useState<StreamHook<T>>({ messages: [], error: undefined });
  const given = useRef(options);
  given.current = options;
  const { after, from, at, group } = options;
  useEffect(() => {
    const { keep = 100, codec, schema, ...rest } = given.current;
    const subscription = tw.stream<T>(name, { ...(codec && { codec }), ...(schema && { schema }) }).subscribe(rest);
    let over = false;
    setHook({ messages: [], error: undefined });
    const follow = async () => {
      // A page is one update of the component, however many messages have come.
      for await (const page of subscription.pages(keep)) {
        if (over) return;
        setHook(({ messages }) => ({ messages: [...messages, ...page].slice(-keep), error: undefined }));
      }
    };
    follow().catch((error: unknown) => {
      if (!over) setHook(({ messages }) => ({ messages, error }));
    });
    return () => {
      over = true;
      subscription.close();
    };
  }, [tw, name, after, from, String(at ?? ""), group]);
  return hook;
}

export interface RoomHook {
  /** The membership, once there is one: to send chats. */
  room: Room | undefined;
  /** The last chats of the others. */
  chats: readonly Chat[];
  /** Who is in the room, with `presence`. */
  members: readonly string[];
  /** Why there is no membership any more. */
  error: unknown;
}

const outside: RoomHook = { room: undefined, chats: [], members: [], error: undefined };

/** A membership in a room for as long as the component is there, with the last `keep` chats: 100 unless given. */
export function useRoom(name: string, options: JoinOptions & { keep?: number } = {}): RoomHook {
  const tw = useTidewire();
  const [hook, setHook] = useState(outside);
  const given = useRef(options);
  given.current = options;
  // The room is left before it is joined again, also when React mounts a component twice.
  const before = useRef<Promise<unknown>>(Promise.resolve());
  useEffect(() => {
    const { keep = 100, ...rest } = given.current;
    const controller = new AbortController();
    const { signal } = controller;
    const change = (part: Partial<RoomHook>) => {
      if (!signal.aborted) setHook((now) => ({ ...now, ...part }));
    };
    const visit = async () => {
      await before.current;
      if (signal.aborted) return;
      const room = await tw.room(name).join({ ...rest, signal });
      change({ room });
      room.on("presence", ({ members }) => change({ members: [...members].sort() }));
      for await (const chat of room.messages) {
        if (!signal.aborted) setHook((now) => ({ ...now, chats: [...now.chats, chat].slice(-keep) }));
      }
    };
    setHook(outside);
    before.current = visit().catch((error: unknown) => change({ room: undefined, error }));
    return () => controller.abort();
  }, [tw, name]);
  return hook;
}
