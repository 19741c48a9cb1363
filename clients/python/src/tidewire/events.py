"""Events: appended if nothing has changed that the decision was made on."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from . import errors, options
from .answers import check_event
from .attachment import Attached
from .backoff import conflict_pause
from .connection import Connection
from .credits import Credits
from .query import Query
from .wire import encode_json

if TYPE_CHECKING:
    from .decision import Decision

S = TypeVar("S")
CREDITS = 256
ATTEMPTS = 5


@dataclass(slots=True)
class Event:
    """Something that has happened. `position` and `time` are those of a stored one."""

    type: str
    tags: Sequence[str] = ()
    data: Any = None
    #: an event with the same id is stored once
    id: str | None = None
    position: int = 0
    time: datetime | None = None

    def __post_init__(self) -> None:
        if isinstance(self.tags, str):  # its letters would be the tags
            raise TypeError(f"tags is a text: want a list, such as [{self.tags!r}]")

    def to_wire(self) -> dict[str, Any]:
        """As the protocol has it."""
        fields: dict[str, Any] = {"type": self.type}
        if self.tags:
            fields["tags"] = list(self.tags)
        if isinstance(self.data, bytes):
            fields["data_base64"] = base64.b64encode(self.data).decode()
        elif self.data is not None:
            fields["data"] = self.data
        if self.id is not None:
            fields["id"] = self.id
        return fields


def event_of(raw: dict[str, Any]) -> Event:
    """A stored event."""
    data = raw.get("data")
    if "data_base64" in raw:
        data = base64.b64decode(raw["data_base64"])
    return Event(
        raw["type"],
        tuple(raw["tags"]),
        data,
        raw.get("id"),
        raw["position"],
        datetime.fromisoformat(raw["time"]),
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """Nothing is stored if an event after the position matches the query."""

    query: Query
    after: int = 0

    def to_wire(self) -> dict[str, Any]:
        """As the protocol has it."""
        return {"query": self.query.to_wire(), "after": self.after}


@dataclass(frozen=True, slots=True)
class Appended:
    """Where the events are."""

    positions: list[int]
    #: They were stored before: the library itself has sent them again after a connection was lost.
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Projection:
    """How many events match each query. As long as `condition` holds, the counts do."""

    counts: list[int]
    condition: Condition


class Events:
    """An event store of the server. `Client.events` makes one."""

    def __init__(self, connection: Connection, store: str | None) -> None:
        self.store = store
        self._connection = connection

    def _body(self, kind: str, **fields: Any) -> dict[str, Any]:
        body = {"type": kind, **fields}
        if self.store is not None:
            body["store"] = self.store
        return body

    async def append(
        self,
        *events: Event,
        condition: Condition | None = None,
        timeout: float | None = None,
    ) -> Appended:
        """Stores events, all or none, and returns after the commit."""
        if not events:
            raise ValueError("there is no event")
        body = self._body("append", events=[event.to_wire() for event in events])
        if condition is not None:
            body["condition"] = condition.to_wire()
        size = len(encode_json(body["events"]).encode())
        answer = await self._connection.requests.perform(
            body, numbered=True, size=size, timeout=timeout
        )
        return Appended(answer["positions"], answer.get("duplicate", False))

    def query(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        before: int = 0,
        backwards: bool = False,
        page: int = 1000,
    ) -> AsyncIterator[Event]:
        """The events that match, of all pages, in the order of positions or backwards."""
        options.count("after", after, 0)
        options.count("before", before, 0)
        options.count("page", page)
        return aiter(Reader(self, query or Query(), after, before, backwards, page))

    async def project(self, *queries: Query, timeout: float | None = None) -> Projection:
        """Counts the events that match each query."""
        body = self._body("project", queries=[query.to_wire() for query in queries])
        answer = await self._connection.requests.perform(body, timeout=timeout)
        condition = answer["condition"]
        union = Query()
        for index, query in enumerate(queries):
            union = query if index == 0 else union | query
        return Projection(answer["counts"], Condition(union, condition.get("after", 0)))

    def subscribe(
        self, query: Query | None = None, *, after: int = 0, credits: int = CREDITS
    ) -> EventSubscription:
        """The events that match: those that are stored, then those to come."""
        options.count("after", after, 0)
        options.count("credits", credits)
        return EventSubscription(self._connection, self._body, query or Query(), after, credits)

    async def read_page(self, **fields: Any) -> tuple[list[Event], int]:
        """One page, and where the next one begins."""
        answer = await self._connection.requests.perform(self._body("query", **fields))
        return [event_of(raw) for raw in answer["events"]], answer["next"]

    async def decide(
        self,
        query: Query,
        fold: Callable[[S, Event], S],
        init: S,
        decide: Callable[[S], Iterable[Event]],
        *,
        attempts: int = ATTEMPTS,
    ) -> Appended | None:
        """Folds the events that match, and appends what `decide` returns for the result.

        If a matching event was stored meanwhile, it reads and decides again, `attempts` times
        at most. `decide` must have no effect of its own. None: it has returned no events.
        """
        options.count("attempts", attempts)
        attempt = 0
        while True:
            state = init
            reader = Reader(self, query)
            async for event in reader:
                state = fold(state, event)
            events = list(decide(state))
            if not events:
                return None
            try:
                return await self.append(*events, condition=Condition(query, reader.position))
            except errors.Conflict:
                if attempt + 1 >= attempts:
                    raise
            await asyncio.sleep(conflict_pause(attempt))
            attempt += 1

    def decisions(
        self, *, attempts: int = ATTEMPTS, **folds: tuple[Query, Any, Callable[[Any, Event], Any]]
    ) -> AsyncIterator[Decision]:
        """Turns of a decision: each has the folds as attributes, and `append`.

        A conflict starts the next turn, so `append` is the last thing that a turn does.
        """
        from .decision import turns

        options.count("attempts", attempts)
        if not folds:
            raise ValueError("a decision needs a fold: decisions(name=(query, init, function))")
        return turns(self, attempts, folds)


class Reader:
    """Reads all pages of a query. `position` is up to where it has read."""

    def __init__(
        self,
        events: Events,
        query: Query,
        after: int = 0,
        before: int = 0,
        backwards: bool = False,
        page: int = 1000,
    ) -> None:
        self.position = after
        self._events = events
        self._fields: dict[str, Any] = {"query": query.to_wire(), "limit": page}
        self._backwards = backwards
        self._after, self._before = after, before

    async def __aiter__(self) -> AsyncIterator[Event]:
        after, before = self._after, self._before
        while True:
            fields = {**self._fields, "after": after}
            if before:
                fields["before"] = before
            if self._backwards:
                fields["backwards"] = True
            events, following = await self._events.read_page(**fields)
            for event in events:
                yield event
            if not events:
                return
            if self._backwards:
                before = following
            else:
                after = self.position = following


class EventSubscription(Attached[dict[str, Any]]):
    """Events that match a query, from a position on. Use it with `async with`."""

    def __init__(
        self,
        connection: Connection,
        body: Callable[..., dict[str, Any]],
        query: Query,
        after: int,
        credits: int,
    ) -> None:
        super().__init__(connection, connection.subscriptions)
        #: the last position that the program was given; at first, where it starts
        self.position = after
        self._body = body
        self._query = query
        self._credits = Credits(credits)

    async def _exit(self, error: BaseException | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Subscribes. `async with` does this."""
        self._register(self._connection.name(), "already_subscribed")
        try:
            await self._connection.requests.perform(self._request())
        except BaseException as error:
            self._give_up(error, {"type": "unsubscribe", "subscription": self._name})
            raise
        self._started = True

    def _request(self) -> dict[str, Any]:
        return self._body(
            "subscribe",
            subscription=self._name,
            query=self._query.to_wire(),
            after=self.position,
            credits=self._credits.most,
        )

    async def close(self) -> None:
        """Ends the subscription. `async with` does this."""
        known = self._registered
        self._feed.end(discard=True)
        self._forget()
        if known and self._connection.connected:
            body = {"type": "unsubscribe", "subscription": self._name}
            self._connection.requests.tell(body)

    def detach(self) -> None:
        """Discards what waits: it comes again."""
        super().detach()
        self._credits.reset()

    def receive(self, message: dict[str, Any]) -> None:
        """Takes an event."""
        if message["type"] == "event":
            check_event(message)
            self._credits.take()
            self._feed.put(message["event"])

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        feed = self._feed
        self._check()
        if not feed.items and not await feed.wait():
            raise StopAsyncIteration
        event = event_of(feed.items.popleft())
        self.position = event.position
        self._attempt = 0
        granted = self._credits.use(1)
        if granted:
            credit = {"type": "credit", "subscription": self._name, "n": granted}
            self._connection.requests.tell(credit)
        return event
