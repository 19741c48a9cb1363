"""The client for programs without asyncio: scripts, Django, notebooks.

A thread runs the loop; every call waits for its result. All threads may share a client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from . import errors
from . import room as rooms
from .client import Client, connect
from .codec import Codec
from .events import Appended, Condition, Event, Events, Projection
from .message import Ack, Message, Page
from .query import Query
from .queue import Queue
from .stream import Stream
from .subscription import Subscription

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


class Portal:
    """A thread with a loop, which runs what other threads ask for."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tidewire", daemon=True)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:  # of other threads, which called at the same time
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, R]) -> concurrent.futures.Future[R]:
        try:
            if self._pid != os.getpid():
                raise RuntimeError("this process is a fork: make a client of its own here")
            if threading.current_thread() is self._thread:
                raise RuntimeError("a callback on the thread of the client cannot wait for it")
            with self._lock:
                if self._stopped:
                    raise errors.Closed("the client is closed")
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine, and waits for its result."""
        future = self._submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._stopped:
                raise errors.Closed("the client is closed") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """The items of an iteration on the loop."""

        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(source)
            except StopAsyncIteration:
                return False, None

        while True:
            more, item = self.call(following())
            if not more:
                return
            yield item  # type: ignore[misc]

    @property
    def stopped(self) -> bool:
        """Whether the thread has ended, or is about to."""
        return self._stopped

    def stop(self) -> None:
        """Ends the thread."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class SyncClient:
    """A client whose calls wait. `connect_sync` makes one; use it with `with`."""

    def __init__(self, portal: Portal, client: Client) -> None:
        self._portal = portal
        self._client = client

    @overload
    def stream(self, name: str) -> SyncStream[Any]: ...
    @overload
    def stream(self, name: str, *, type: type[T] | Codec[T]) -> SyncStream[T]: ...
    def stream(self, name: str, *, type: Any = None) -> SyncStream[Any]:
        """A stream."""
        return SyncStream(self._portal, self._client.stream(name, type=type))

    @overload
    def queue(self, name: str) -> SyncQueue[Any]: ...
    @overload
    def queue(self, name: str, *, type: type[T] | Codec[T]) -> SyncQueue[T]: ...
    def queue(self, name: str, *, type: Any = None) -> SyncQueue[Any]:
        """A queue."""
        return SyncQueue(self._portal, self._client.queue(name, type=type))

    def room(self, name: str) -> SyncRoom:
        """A room."""
        return SyncRoom(self._portal, self._client.room(name))

    def events(self, store: str | None = None) -> SyncEvents:
        """An event store."""
        return SyncEvents(self._portal, self._client.events(store))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for answers, and ends the client and its thread."""
        if self._portal.stopped:
            return
        try:
            self._portal.call(self._client.close())
        finally:
            self._portal.stop()


class SyncStream(Generic[T]):
    """A stream whose calls wait."""

    def __init__(self, portal: Portal, stream: Stream[T]) -> None:
        self._portal = portal
        self._stream = stream

    def publish(self, value: T, **options: Any) -> Ack:
        """As `Stream.publish`."""
        return self._portal.call(self._stream.publish(value, **options))

    def publish_all(self, values: Iterable[T], **options: Any) -> Ack:
        """As `Stream.publish_all`."""
        return self._portal.call(self._stream.publish_all(values, **options))

    def subscribe(self, **options: Any) -> SyncSubscription[T]:
        """As `Stream.subscribe`: use it with `with`, and iterate over it with `for`."""
        return SyncSubscription(self._portal, self._stream.subscribe(**options))


class SyncSubscription(Generic[T]):
    """A subscription whose iteration waits."""

    def __init__(self, portal: Portal, subscription: Subscription[T]) -> None:
        self._portal = portal
        self._subscription = subscription

    @property
    def position(self) -> int | None:
        """The last position that the program was given; at first, where it starts."""
        return self._subscription.position

    def __enter__(self) -> Self:
        self._portal.call(self._subscription.open())
        return self

    def __exit__(self, *_: object) -> None:
        self._portal.call(self._subscription.close())

    def __iter__(self) -> Iterator[Message[T]]:
        return self._portal.iterate(self._subscription)

    def pages(self, *, max: int = 500, wait: float = 0.0) -> Iterator[list[Message[T]]]:
        """Lists of messages that have arrived."""
        pages: AsyncIterator[Page[T]] = self._subscription.pages(max=max, wait=wait)
        for page in self._portal.iterate(pages):
            yield page.messages

    def commit(self, message: Message[T] | int, *, partition: int | None = None) -> int:
        """As `Subscription.commit`."""
        return self._portal.call(self._subscription.commit(message, partition=partition))


class SyncQueue(Generic[T]):
    """A queue whose calls wait. Workers need asyncio."""

    def __init__(self, portal: Portal, queue: Queue[T]) -> None:
        self._portal = portal
        self._queue = queue

    def enqueue(self, value: T, **options: Any) -> Ack:
        """As `Queue.enqueue`."""
        return self._portal.call(self._queue.enqueue(value, **options))

    def enqueue_all(self, values: Iterable[T], **options: Any) -> Ack:
        """As `Queue.enqueue_all`."""
        return self._portal.call(self._queue.enqueue_all(values, **options))


class SyncEvents:
    """An event store whose calls wait."""

    def __init__(self, portal: Portal, events: Events) -> None:
        self._portal = portal
        self._events = events

    def append(self, *events: Event, condition: Condition | None = None) -> Appended:
        """As `Events.append`."""
        return self._portal.call(self._events.append(*events, condition=condition))

    def query(self, query: Query | None = None, **options: Any) -> Iterator[Event]:
        """As `Events.query`."""
        return self._portal.iterate(self._events.query(query, **options))

    def project(self, *queries: Query) -> Projection:
        """As `Events.project`."""
        return self._portal.call(self._events.project(*queries))

    def decide(
        self,
        query: Query,
        fold: Callable[[S, Event], S],
        init: S,
        decide: Callable[[S], Iterable[Event]],
        *,
        attempts: int = 5,
    ) -> Appended | None:
        """As `Events.decide`. `decide` runs on the thread of the loop."""
        return self._portal.call(self._events.decide(query, fold, init, decide, attempts=attempts))


class SyncRoom:
    """A room whose calls wait."""

    def __init__(self, portal: Portal, room: rooms.Room) -> None:
        self._portal = portal
        self._room = room

    def join(self, **options: Any) -> SyncMembership:
        """As `Room.join`: use it with `with`, and iterate over it with `for`."""
        return SyncMembership(self._portal, self._room.join(**options))


class SyncMembership:
    """A membership whose calls wait."""

    def __init__(self, portal: Portal, membership: rooms.Membership) -> None:
        self._portal = portal
        self._membership = membership

    def __enter__(self) -> Self:
        self._portal.call(self._membership.open())
        return self

    def __exit__(self, *_: object) -> None:
        self._portal.call(self._membership.leave())

    @property
    def members(self) -> frozenset[str]:
        """Who is in the room, with `presence`."""
        return self._membership.members

    def chat(self, text: str, **options: Any) -> int | None:
        """As `Membership.chat`."""
        return self._portal.call(self._membership.chat(text, **options))

    def __iter__(self) -> Iterator[rooms.RoomEvent]:
        return self._portal.iterate(self._membership)


def connect_sync(url: str, **options: Any) -> SyncClient:
    """A client for programs without asyncio, with the options of `connect`."""
    client = connect(url, **options)  # first, since it may refuse an option
    return SyncClient(Portal(), client)
