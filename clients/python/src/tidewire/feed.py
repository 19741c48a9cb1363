"""What has arrived and waits for the program."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Feed(Generic[T]):
    """Items in their order, for one or more tasks. The loop that reads never waits for them."""

    __slots__ = ("_error", "_waiters", "ended", "items")

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.ended = False
        self._error: BaseException | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()

    def put(self, item: T) -> None:
        """Adds an item, and wakes one task."""
        self.items.append(item)
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def end(self, error: BaseException | None = None, *, discard: bool = False) -> None:
        """Ends the feed: after the items that wait, or at once."""
        if discard:
            self.items.clear()
        if self.ended:
            return
        self.ended, self._error = True, error
        while self._waiters:
            self._wake()

    async def wait(self) -> bool:
        """Waits for an item. False: the feed has ended, and has no more."""
        while not self.items:
            if self.ended:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                return False
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and self.items:
                    self._wake()  # another task takes the item that this one was woken for
                raise
        return True

    async def wait_until(self, deadline: float) -> None:
        """Waits for an item, the end, or a time of the loop's clock."""
        loop = asyncio.get_running_loop()
        if self.items or self.ended or loop.time() >= deadline:
            return
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = loop.call_at(deadline, _release, waiter)
        try:
            await waiter
        finally:
            timer.cancel()


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
