"""A subscription of a stream: it lives until the program ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from . import errors, options, otel
from .answers import check_message, check_position
from .attachment import Attached
from .codec import Codec
from .connection import Connection
from .credits import Credits
from .message import Message, Page, Skipped
from .pending import Answer
from .wire import payload_in

T = TypeVar("T")
CREDITS = 256
#: errors that say where to go on
GAPS = (errors.TooOld, errors.MessageTooLarge)
#: items after which the subscription goes on when the program comes to them
CROSSED = ("parked", "gap")

PartitionListener = Callable[[list[int]], None]


@dataclass(slots=True, kw_only=True)
class SubscribeOptions:
    """What `Stream.subscribe` was given."""

    after: int | None = None
    at: datetime | None = None
    start: Literal["start", "end"] | None = None
    group: str | None = None
    share: bool = False
    keys: Iterable[str] | None = None
    headers: Mapping[str, str] | None = None
    credits: int = CREDITS
    gaps: Literal["raise", "skip"] = "raise"
    on_gap: Callable[[Skipped], None] | None = None
    on_assigned: PartitionListener | None = None
    on_revoked: PartitionListener | None = None
    on_invalid: Callable[[errors.InvalidMessage], None] | None = None

    def begin(self) -> dict[str, Any]:
        """Where it starts, as the wire has it."""
        if self.after is not None:
            return {"after": self.after}
        if self.at is not None:
            return {"at": self.at.astimezone().isoformat()}
        if self.start is not None:
            return {"from": self.start}
        return {} if self.group is None else {"group": self.group}

    def filters(self) -> dict[str, Any]:
        """Which messages it wants, as the wire has it."""
        wanted: dict[str, Any] = {}
        if self.keys is not None:
            wanted["keys"] = list(self.keys)
        if self.headers is not None:
            wanted["headers"] = dict(self.headers)
        return wanted


class Subscription(Attached[dict[str, Any]], Generic[T]):
    """Messages of a stream, from a position on: those that are stored, then those to come.

    Use it with `async with`, and iterate over it once.
    """

    def __init__(
        self, connection: Connection, stream: str, codec: Codec[T], given: SubscribeOptions
    ) -> None:
        if given.share and given.group is None:
            raise ValueError("share needs a group")
        super().__init__(connection, connection.subscriptions)
        self.stream = stream
        self.options = given
        self._codec = codec
        self._position: int | None = None
        self._credits = Credits(given.credits)
        self._traced = otel.active()
        self._owned: set[int] = set()
        self._span: AbstractContextManager[Any] | None = None
        #: messages of a page that was not handed out
        self._begun: list[Message[T]] = []

    # The life of a subscription.

    async def _exit(self, error: BaseException | None) -> None:
        await self.close(error)

    async def open(self, *, timeout: float | None = None) -> None:
        """Subscribes. `async with` does this."""
        self._register(self._connection.name(), "already_subscribed")
        try:
            answer = await self._first(timeout)
        except BaseException as error:
            self._give_up(error, self._unsubscribe())
            raise
        self._started = True
        if self._position is None:
            self._position = answer.get("position")

    async def _first(self, timeout: float | None) -> Answer:
        while True:
            try:
                return await self._connection.requests.perform(self._request(), timeout=timeout)
            except GAPS as error:
                if self.options.gaps != "skip":
                    raise
                self._skip(error)

    def _request(self) -> dict[str, Any]:
        given = self.options
        position = self._position
        begin = given.begin() if position is None else {"after": position}
        body: dict[str, Any] = {
            "type": "subscribe",
            "stream": self.stream,
            "subscription": self._name,
        }
        body |= {"credits": given.credits, **begin, **given.filters()}
        if given.share:
            body |= {"group": given.group, "share": True}
        return body

    async def close(self, error: BaseException | None = None) -> None:
        """Ends the subscription. `async with` does this."""
        self._end_span(error)
        connection = self._connection
        known = self._registered
        self._feed.end(discard=True)
        self._forget()
        if known and connection.connected:
            connection.requests.tell(self._unsubscribe())

    def _unsubscribe(self) -> dict[str, Any]:
        return {"type": "unsubscribe", "subscription": self._name}

    @property
    def position(self) -> int | None:
        """The last position that the program was given; at first, where it starts.

        None with `share`, where each partition has its own.
        """
        return self._position

    # What the connection calls.

    def detach(self) -> None:
        """Discards what waits: it comes again."""
        super().detach()
        self._credits.reset()
        if self.options.share:
            self._begun.clear()  # they come again
        self._tell_revoked(sorted(self._owned))
        self._owned.clear()

    def receive(self, message: dict[str, Any]) -> None:
        """Takes a message of the server."""
        kind = message["type"]
        if kind == "message":
            check_message(message)
            self._credits.take()
            self._feed.put(message)
        elif kind == "position":
            self._mark(message)
        elif kind == "assigned":
            self._owned.update(message["partitions"])
            if self.options.on_assigned is not None:
                self._tell(self.options.on_assigned, message["partitions"])
        elif kind == "revoked":
            self._revoke(message["partitions"])
        elif kind == "parked":
            error = _parked(message)
            parked = {"type": kind, "partition": message["partition"], "error": error}
            self._feed.put(parked | {"reported": False})  # after the messages before it

    def ended(self, error: errors.Error) -> None:
        """The server has ended it: subscribe again, or end the iteration."""
        if isinstance(error, GAPS) and self.options.gaps == "skip":
            self._feed.put({"type": "gap", "error": error})  # after the messages before it
        else:
            super().ended(error)

    # Mark, skip, and share.

    def _mark(self, message: dict[str, Any]) -> None:
        items = self._feed.items
        check_position(message)
        if self.options.share:
            return  # each partition has its own, and the program commits it
        if not items:
            self._position = message["position"]
        elif items[-1]["type"] == "position":
            items[-1] = message
        else:
            self._feed.put(message)  # after the messages before it

    def _skip(self, error: errors.TooOld | errors.MessageTooLarge) -> None:
        if self.options.on_gap is not None:
            self._tell(self.options.on_gap, _skipped(error))
        self._position = error.oldest - 1

    async def _cross(self) -> None:
        """Goes on after messages that are missing, if the program wants that, or raises."""
        items = self._feed.items
        raw = items[0]
        error = raw["error"]
        if raw["type"] == "gap":
            self._skip(error)
            self.detach()
            self.attach()
            return
        if self.options.gaps != "skip":
            items.popleft()
            raise error
        if not raw["reported"]:
            raw["reported"] = True
            if self.options.on_gap is not None:
                self.options.on_gap(_skipped(error))
        with suppress(errors.Fenced):  # its owner does the same
            await self.commit(error.oldest - 1, partition=error.partition)
        if items and items[0] is raw:
            items.popleft()

    def _revoke(self, partitions: list[int]) -> None:
        gone = set(partitions)
        self._begun[:] = [m for m in self._begun if m.partition not in gone]
        self._owned -= gone
        kept = [m for m in self._feed.items if m.get("partition") not in gone]
        discarded = sum(m["type"] == "message" for m in self._feed.items)
        discarded -= sum(m["type"] == "message" for m in kept)
        self._feed.items.clear()
        self._feed.items.extend(kept)
        self._use(discarded)
        self._tell_revoked(partitions)

    def _tell_revoked(self, partitions: list[int]) -> None:
        if partitions and self.options.on_revoked is not None:
            self._tell(self.options.on_revoked, partitions)

    def _tell(self, listener: Callable[[Any], None], value: Any) -> None:
        """Calls the program, not from within the loop that reads."""
        self._connection.call(listener, value)

    # What the program calls.

    def __aiter__(self) -> AsyncIterator[Message[T]]:
        return self

    async def __anext__(self) -> Message[T]:
        self._end_span()
        feed = self._feed
        self._check()
        while True:
            if not self._begun and not feed.items and not await feed.wait():
                raise StopAsyncIteration
            if self._begun:
                message: Message[T] | None = self._begun.pop(0)
            elif feed.items[0]["type"] in CROSSED:
                await self._cross()
                continue
            else:
                message = self._hand_out(feed.items.popleft())
            if message is not None:
                if self._traced:
                    self._span = otel.process(True, self.stream, message.headers)
                    self._span.__enter__()
                return message

    def _hand_out(self, raw: dict[str, Any]) -> Message[T] | None:
        """The message, if it is one and the codec takes it. Its position counts as given."""
        if not self.options.share:
            self._position = raw["position"]
        if raw["type"] != "message":
            return None
        self._use(1)
        try:
            value = self._codec.decode(payload_in(raw))
        except Exception as reason:
            self._invalid(raw, reason)
            return None
        return Message(raw, value)

    def _invalid(self, raw: dict[str, Any], reason: Exception) -> None:
        error = errors.InvalidMessage(
            f"position {raw['position']}: {reason} (on_invalid takes such messages)",
            raw=Message(raw, payload_in(raw)),
        )
        error.__cause__ = reason
        if self.options.on_invalid is None:
            raise error
        self.options.on_invalid(error)

    def _use(self, n: int) -> None:
        """Grants credits again when half are used."""
        self._attempt = 0
        granted = self._credits.use(n)
        if granted:
            credit = {"type": "credit", "subscription": self._name, "n": granted}
            self._connection.requests.tell(credit)

    def _end_span(self, error: BaseException | None = None) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(type(error) if error else None, error, None)

    def pages(self, *, max: int = 500, wait: float = 0.0) -> AsyncIterator[Page[T]]:
        """Pages of up to `max` messages that have arrived.

        With `wait`, a page that is not full waits so many seconds for more messages.
        """
        options.count("max", max)
        options.seconds("wait", wait)
        self._check()
        return self._pages(max, wait)

    async def _pages(self, most: int, wait: float) -> AsyncIterator[Page[T]]:
        loop = asyncio.get_running_loop()
        feed = self._feed
        begun = self._begun
        while True:
            if not begun and not await feed.wait():
                return
            until = loop.time() + wait
            failure: Exception | None = None
            while len(begun) < most and failure is None:
                if not feed.items:
                    await feed.wait_until(until)
                    if not feed.items:
                        break
                missing = feed.items[0]["type"] in CROSSED
                if missing and begun:
                    break  # the program gets these first
                try:
                    if missing:
                        await self._cross()
                        continue
                    message = self._hand_out(feed.items.popleft())
                except Exception as error:
                    failure = error  # the messages before it come first
                else:
                    begun += [] if message is None else [message]
            if begun:
                messages = begun[:most]
                del begun[:most]
                yield Page(messages, self._commit_page)
            if failure is not None:
                raise failure

    async def commit(self, message: Message[T] | int, *, partition: int | None = None) -> int:
        """Moves the offset of the group up to a message. Returns the offset."""
        if self.options.group is None:
            raise ValueError("only a subscription with a group can commit")
        if isinstance(message, Message):
            partition = message.partition
            message = message.position
        body: dict[str, Any] = {"type": "commit", "stream": self.stream}
        body |= {"group": self.options.group, "position": message}
        if partition is not None:
            body["partition"] = partition
        answer = await self._connection.requests.perform(body)
        return int(answer["position"])

    async def _commit_page(self, page: Page[T]) -> None:
        last = {message.partition: message.position for message in page.messages}
        for partition, position in last.items():
            await self.commit(position, partition=partition)


def _parked(message: Mapping[str, Any]) -> errors.TooOld | errors.MessageTooLarge:
    """The error that says why a partition stands still."""
    oldest, partition = message["oldest"], message["partition"]
    if message["code"] == errors.MessageTooLarge.code:
        kind: type[errors.TooOld | errors.MessageTooLarge] = errors.MessageTooLarge
        text = f"the server does not read the message at position {message['position']}"
        text += f" of partition {partition}, which has {message['size']} bytes"
    else:
        kind = errors.TooOld
        text = f"the messages of partition {partition} before position {oldest} were dropped"
    text += f": commit position {oldest - 1} of this partition, and iterate again"
    names = ("partition", "oldest", "position", "size")
    return kind(text, details={name: message[name] for name in names if name in message})


def _skipped(error: errors.TooOld | errors.MessageTooLarge) -> Skipped:
    position = size = None
    if isinstance(error, errors.MessageTooLarge):
        position, size = error.position, error.size
    return Skipped(error.oldest, error.partition, error.code, position, size)
