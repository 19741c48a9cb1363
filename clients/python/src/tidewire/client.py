"""The client: one connection, and the nouns on it."""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from . import options
from .codec import Codec, codec_for
from .connection import Connection
from .events import Events
from .queue import Queue
from .room import Room
from .state import State
from .stream import Stream
from .token import TokenCallback, Tokens
from .worker import Worker

T = TypeVar("T")


class Client:
    """A client of a Tidewire server. `connect` makes one.

    Use it with `async with`: at the end it stops its workers and closes the connection.
    What fails in the background ends the block, and raises from it.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | TokenCallback | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        batch: bool = True,
        max_pending: int = 1000,
        max_pending_bytes: int = 4 << 20,
        headers: Mapping[str, str] | None = None,
        ssl: ssl_module.SSLContext | None = None,
        on_state: Callable[[State], None] | None = None,
        on_notice: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        if token is not None and api_key is not None:
            raise ValueError("give a token or an API key, not both")
        options.secret("token", token)
        options.secret("api_key", api_key)
        options.seconds("timeout", timeout)
        options.count("max_pending", max_pending)
        options.count("max_pending_bytes", max_pending_bytes)
        self._connection = Connection(
            options.websocket_address(url),
            Tokens(api_key if token is None else token),
            headers=headers or {},
            ssl=ssl,
            on_state=on_state,
            on_failure=self._fail,
            timeout=timeout,
            batch=batch,
            max_pending=max_pending,
            max_pending_bytes=max_pending_bytes,
        )
        self._connection.on_notice = on_notice
        self._workers: list[Worker[Any]] = []
        self._owner: asyncio.Task[Any] | None = None
        self._entered = False
        self._interrupted = False
        self._failure: BaseException | None = None

    @property
    def state(self) -> State | None:
        """The state of the connection; None before the first request."""
        return self._connection.state

    @property
    def hello(self) -> Mapping[str, Any]:
        """What the server has said of itself: version, features and limits."""
        return self._connection.hello

    # The nouns.

    @overload
    def stream(self, name: str) -> Stream[Any]: ...
    @overload
    def stream(self, name: str, *, type: type[T] | Codec[T]) -> Stream[T]: ...
    def stream(self, name: str, *, type: Any = None) -> Stream[Any]:
        """A stream. `type` is a dataclass, a pydantic model, a TypedDict or a codec."""
        return Stream(self._connection, name, codec_for(type))

    @overload
    def queue(self, name: str) -> Queue[Any]: ...
    @overload
    def queue(self, name: str, *, type: type[T] | Codec[T]) -> Queue[T]: ...
    def queue(self, name: str, *, type: Any = None) -> Queue[Any]:
        """A queue. `type` is a dataclass, a pydantic model, a TypedDict or a codec."""
        return Queue(self._connection, name, codec_for(type), self._background)

    def room(self, name: str) -> Room:
        """A room."""
        return Room(self._connection, name)

    def events(self, store: str | None = None) -> Events:
        """An event store; without a name the default one."""
        return Events(self._connection, store)

    # The life of a client.

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        self._entered = True
        for worker in self._workers:
            self._run(worker)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        owner, self._owner = self._owner, None
        if owner is not None and self._interrupted:
            if not isinstance(error, asyncio.CancelledError):
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)  # the interruption comes here
            owner.uncancel()
        await self.close()
        if self._failure is None:
            return
        cancelled = owner is not None and owner.cancelling()
        if not cancelled and (error is None or isinstance(error, asyncio.CancelledError)):
            raise self._failure
        self._tell(self._failure)  # the block ends with another error

    async def close(self) -> None:
        """Stops the workers, waits for answers, at most 5 s, and ends every iterator."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        await self._connection.close()

    # The background.

    def _background(self, worker: Worker[Any]) -> None:
        self._workers.append(worker)
        if self._entered:
            self._run(worker)

    def _run(self, worker: Worker[Any]) -> None:
        worker.start().add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Raises the first error of the background in the block, and tells the loop the others."""
        if self._owner is None or self._failure is not None:
            self._tell(error)
            return
        self._failure = error
        self._interrupted = True
        self._owner.cancel()

    def _tell(self, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "an error in the background of a Tidewire client", "exception": error}
        )


def connect(
    url: str,
    *,
    token: str | TokenCallback | None = None,
    api_key: str | None = None,
    timeout: float = 30.0,
    batch: bool = True,
    max_pending: int = 1000,
    max_pending_bytes: int = 4 << 20,
    headers: Mapping[str, str] | None = None,
    ssl: ssl_module.SSLContext | None = None,
    on_state: Callable[[State], None] | None = None,
    on_notice: Callable[[dict[str, Any]], None] | None = None,
) -> Client:
    """A client of the server at `url`, such as `wss://rt.example.com/ws`; `https` is the same.

    It returns at once. The client connects when it is first needed, and again whenever the
    connection is lost, until it is closed. `timeout`, in seconds, is for each request with all
    its attempts.
    """
    return Client(
        url,
        token=token,
        api_key=api_key,
        timeout=timeout,
        batch=batch,
        max_pending=max_pending,
        max_pending_bytes=max_pending_bytes,
        headers=headers,
        ssl=ssl,
        on_state=on_state,
        on_notice=on_notice,
    )
