"""How many calls wait, and for how long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from . import errors, options
from .pending import Call, late


class Bounds:
    """Admits calls in their order, and ends those whose time is over."""

    def __init__(
        self,
        start: Callable[[], None],
        timeout: float,
        max_pending: int,
        max_bytes: int,
    ) -> None:
        self.message_bytes: int | None = None
        #: why there is no connection
        self.failure: Exception | None = None
        #: what further calls get
        self.closed: Exception | None = None
        self._start = start
        self._timeout = timeout
        self._max_pending = max_pending
        self._max_bytes = max_bytes
        self._calls: set[Call] = set()
        self._bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._admitting: deque[Call] = deque()
        self._sweeper: asyncio.TimerHandle | None = None

    def admit(self, size: int, timeout: float | None) -> Call:
        """A new call. If there is no room for it, it is not `admitted`, and has to wait."""
        if self.closed is not None:
            raise self.closed.with_traceback(None)
        if self.message_bytes is not None and size > self.message_bytes:
            raise errors.TooBig(f"{size} bytes are more than the {self.message_bytes} of a message")
        if timeout is not None:
            options.seconds("timeout", timeout)
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("a client belongs to one event loop: make another client for this")
        deadline = loop.time() + (self._timeout if timeout is None else timeout)
        call = Call(loop.create_future(), deadline, size)
        if self._sweeper is None or deadline < self._sweeper.when():
            self._sweep_at(deadline)
        if not self._admitting and self._room(size):
            self._take(call)
        else:
            call.admitted = False
            self._admitting.append(call)
            self._start()
        return call

    async def room(self, call: Call) -> None:
        """Waits until there is room for a call."""
        try:
            await call.future
            if self.closed is not None:
                raise self.closed.with_traceback(None)
        except BaseException:
            self.leave(call)
            raise
        call.admitted = True
        call.future = asyncio.get_running_loop().create_future()

    def _room(self, size: int) -> bool:
        calls = len(self._calls)
        return not calls or (calls < self._max_pending and self._bytes + size <= self._max_bytes)

    def _take(self, call: Call) -> None:
        self._calls.add(call)
        self._bytes += call.size

    def _let_in(self) -> None:
        """Admits calls that wait for room, in their order."""
        while self._admitting:
            first = self._admitting[0]
            if not first.future.done():
                if not self._room(first.size):
                    return
                self._take(first)
                first.future.set_result({})
            self._admitting.popleft()

    def leave(self, call: Call) -> None:
        """A call has its answer, or does not wait any more."""
        if call in self._calls:
            self._calls.remove(call)
            self._bytes -= call.size
        if self._admitting:
            self._let_in()

    def _sweep_at(self, deadline: float) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweeper = asyncio.get_running_loop().call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        """Ends the calls whose time is over. One timer serves all of them."""
        self._sweeper = None
        now = asyncio.get_running_loop().time()
        following = float("inf")
        for call in [*self._calls, *self._admitting]:
            if call.future.done():
                continue
            if call.deadline <= now:
                call.future.set_exception(late(call.request, self.failure))
            else:
                following = min(following, call.deadline)
        if following != float("inf"):
            self._sweep_at(following)

    async def answered_all(self, seconds: float) -> None:
        """Waits until no call waits for an answer, or so many seconds."""
        waiting = [call.future for call in self._calls if not call.future.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    def close(self, error: Exception) -> None:
        """Ends the calls that wait for room."""
        self.closed = error
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for waiting in self._admitting:
            if not waiting.future.done():
                waiting.future.set_exception(error)
