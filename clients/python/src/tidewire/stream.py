"""Streams: logs of messages, each with a position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from . import errors, options, otel
from .codec import Codec
from .connection import Connection
from .message import Ack, Skipped, ack_of
from .subscription import CREDITS, PartitionListener, SubscribeOptions, Subscription
from .wire import message_of

T = TypeVar("T")


class Stream(Generic[T]):
    """A stream of the server. `Client.stream` makes one."""

    def __init__(self, connection: Connection, name: str, codec: Codec[T]) -> None:
        self.name = name
        self._connection = connection
        self._codec = codec

    def _message(
        self, value: T, key: str | None, headers: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], int]:
        message, size = message_of(self._codec.encode(value), key, otel.inject(headers))
        return message, size + 32 * len(message.get("headers", ()))

    async def publish(
        self,
        value: T,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Stores a message, once, and returns after the commit."""
        message, size = self._message(value, key, headers)
        requests = self._connection.requests
        return await requests.publish(self.name, key, message, size, timeout)

    async def publish_all(
        self,
        values: Iterable[T],
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Stores messages, all or none, at consecutive positions."""
        made = [self._message(value, key, headers) for value in values]
        if not made:
            raise ValueError("there is no message")
        body = {"type": "publish", "stream": self.name, "messages": [m for m, _ in made]}
        size = sum(size for _, size in made)
        requests = self._connection.requests
        return ack_of(await requests.perform(body, numbered=True, size=size, timeout=timeout))

    def subscribe(
        self,
        *,
        after: int | None = None,
        at: datetime | None = None,
        start: Literal["start", "end"] | None = None,
        group: str | None = None,
        share: bool = False,
        keys: Iterable[str] | None = None,
        headers: Mapping[str, str] | None = None,
        credits: int = CREDITS,
        gaps: Literal["raise", "skip"] = "raise",
        on_gap: Callable[[Skipped], None] | None = None,
        on_assigned: PartitionListener | None = None,
        on_revoked: PartitionListener | None = None,
        on_invalid: Callable[[errors.InvalidMessage], None] | None = None,
    ) -> Subscription[T]:
        """A subscription: use it with `async with`, and iterate over it with `async for`.

        It begins after the position `after`, or at the time `at`, or at the `start` or `end` of
        the stream. Without one of them it begins after the offset of `group`, or at the end.
        With `share`, the members of the group divide the partitions of the stream.
        `gaps="skip"` goes on if messages were dropped, or one is too large for the server, and
        `on_gap` gets what is missing. With `share` this commits `oldest` - 1 of the partition:
        what the program has got of it before counts as processed.
        """
        options.at_most_one(after=after, at=at, start=start)
        options.optional_count("after", after)
        options.count("credits", credits)
        given = SubscribeOptions(
            after=after,
            at=at,
            start=start,
            group=group,
            share=share,
            keys=keys,
            headers=headers,
            credits=credits,
            gaps=gaps,
            on_gap=on_gap,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_invalid=on_invalid,
        )
        return Subscription(self._connection, self.name, self._codec, given)

    async def commit(self, group: str, position: int, *, timeout: float | None = None) -> int:
        """Moves the offset of a group that does not share. Returns the offset."""
        body = {"type": "commit", "stream": self.name, "group": group, "position": position}
        answer = await self._connection.requests.perform(body, timeout=timeout)
        return int(answer["position"])
