"""What lives as long as the program wants it, on whichever connection the client has."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from . import errors
from .backoff import pause
from .connection import Connection
from .feed import Feed
from .pending import Answer

T = TypeVar("T")


class Attached(Generic[T]):
    """The part that subscriptions, consumers and memberships have in common."""

    def __init__(self, connection: Connection, registry: dict[str, Any]) -> None:
        self._connection = connection
        self._registry = registry
        self._name = ""
        self._feed: Feed[T] = Feed()
        self._started = False
        self._attempt = 0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._exit(error)

    async def open(self) -> None:
        """Begins. `async with` does this."""
        raise NotImplementedError

    async def _exit(self, error: BaseException | None) -> None:
        """Ends it, at the end of `async with`."""
        raise NotImplementedError

    def _request(self) -> dict[str, Any]:
        """What is asked again on each connection."""
        raise NotImplementedError

    def _register(self, name: str, kind: str) -> None:
        if self._name:
            raise RuntimeError("this was opened before: make another one")
        if name in self._registry:
            raise errors.Error(f"this client has {name} already", code=kind)
        self._name = name
        self._registry[name] = self

    def _give_up(self, error: BaseException, body: dict[str, Any]) -> None:
        """The first request has failed. Without an answer the server may have it all the same."""
        refused = isinstance(error, errors.Error) and not isinstance(error, errors.Timeout)
        if not refused and self._registered and self._connection.connected:
            self._connection.requests.tell(body)
        self._forget()

    @property
    def _registered(self) -> bool:
        return self._registry.get(self._name) is self

    def _forget(self) -> None:
        self._cancel_timer()
        if self._registered:
            del self._registry[self._name]

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if not self._name:
            raise RuntimeError("open it with `async with` first")

    def attach(self) -> None:
        """There is a connection: asks for it again. The first request repeats itself."""
        self._timer = None
        if self._started and not self._feed.ended and self._connection.connected:
            self._connection.requests.ask(self._request(), self._attached)

    def _attached(self, answer: Answer | Exception) -> None:
        if isinstance(answer, errors.Error) and self._connection.connected:
            self.ended(answer)

    def detach(self) -> None:
        """The connection has ended: discards what comes again."""
        self._feed.items.clear()
        self._cancel_timer()

    def ended(self, error: errors.Error) -> None:
        """The server has ended it: asks again after a pause, or ends the iteration."""
        if error.retryable:
            self.detach()
            wait = pause(self._attempt) if error.retry_after is None else error.retry_after
            self._attempt += 1
            self._timer = asyncio.get_running_loop().call_later(wait, self.attach)
        else:
            self._forget()
            self._feed.end(error)

    def shut(self, error: Exception | None) -> None:
        """The client has ended."""
        self._forget()
        self._feed.end(error, discard=True)
