"""Messages of streams, as the program sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Ack:
    """A message is stored. Of several messages, `position` is that of the first one."""

    position: int
    count: int = 1
    #: It was stored before: with the same `unique_key`, or since the library itself has sent it
    #: again after a connection was lost.
    duplicate: bool = False
    partition: int | None = None


def ack_of(answer: Mapping[str, Any]) -> Ack:
    """The acknowledgement in an answer."""
    get = answer.get
    return Ack(answer["position"], get("count", 1), get("duplicate", False), get("partition"))


class Message(Generic[T]):
    """A message of a stream."""

    __slots__ = ("_time", "headers", "key", "partition", "position", "stream", "value")

    def __init__(self, raw: Mapping[str, Any], value: T) -> None:
        get = raw.get
        self.value = value
        self.stream: str = raw["stream"]
        self.position: int = raw["position"]
        self.key: str | None = get("key")
        self.headers: Mapping[str, Any] = get("headers") or {}
        #: of a group that shares partitions; else None
        self.partition: int | None = get("partition")
        self._time: str = raw["time"]

    @property
    def time(self) -> datetime:
        """When it was stored."""
        return datetime.fromisoformat(self._time)

    def __repr__(self) -> str:
        return f"<Message {self.stream} {self.position} {self.value!r}>"


@dataclass(slots=True)
class Page(Generic[T]):
    """Messages that have arrived, in their order."""

    messages: list[Message[T]]
    _commit: Callable[[Page[T]], Awaitable[None]] = field(repr=False)

    def __iter__(self) -> Any:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def values(self) -> list[T]:
        """The values of the messages."""
        return [message.value for message in self.messages]

    async def commit(self) -> None:
        """Moves the offset of the group up to the end of this page."""
        await self._commit(self)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Messages that the program does not get: the subscription goes on at `oldest`."""

    oldest: int
    #: of a group that shares partitions; else None
    partition: int | None = None
    #: `too_old`: retention has dropped them. `message_too_large`: the server does not read one,
    #: which is at `position` and has a payload of `size` bytes
    code: str = "too_old"
    position: int | None = None
    size: int | None = None
