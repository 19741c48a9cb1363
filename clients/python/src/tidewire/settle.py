"""Acknowledgements: those of 10 ms go out together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from . import errors
from .pending import Policy
from .requests import Requests

WINDOW = 0.010
MOST = 1000

Settled = Callable[[Exception | None], None]


class Settler:
    """Settles the deliveries of one consumer on one connection."""

    def __init__(self, requests: Requests, queue: str, urgent: Callable[[], bool]) -> None:
        self._requests = requests
        self._queue = queue
        self._urgent = urgent
        self._acks: dict[str, Settled] = {}
        self._timer: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def ack(self, delivery: str, settled: Settled) -> None:
        """The work is done."""
        self._acks[delivery] = settled
        if len(self._acks) >= MOST:
            self.flush()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            if self._urgent():  # the next job comes only after these
                self._timer = loop.call_soon(self.flush)
            else:
                self._timer = loop.call_later(WINDOW, self.flush)

    def hurry(self) -> None:
        """Nothing runs any more: what waits goes out with what this turn of the loop adds."""
        if isinstance(self._timer, asyncio.TimerHandle):
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Sends what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        acks, self._acks = self._acks, {}
        if acks:
            self._spawn(self.settle("ack", acks))

    def nack(self, delivery: str, fields: dict[str, Any], settled: Settled) -> None:
        """The work has failed."""
        self._spawn(self.settle("nack", {delivery: settled}, fields))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(
        self, kind: str, deliveries: dict[str, Settled], fields: dict[str, Any] | None = None
    ) -> None:
        """Sends one request, and tells each delivery how it ended."""
        waiting = deliveries
        for _ in range(5):
            body = {"type": kind, "queue": self._queue, "deliveries": list(waiting)}
            try:
                await self._requests.perform(
                    {**body, **(fields or {})}, policy=Policy.BOUND, size=32 * len(waiting)
                )
            except errors.Error as error:
                waiting = _told(waiting, error)
                if not waiting:
                    return
                await asyncio.sleep(error.retry_after or WINDOW)
            else:
                for settled in waiting.values():
                    settled(None)
                return
        for settled in waiting.values():
            settled(errors.OutcomeUnknown(f"the outcome of the {kind} is not known"))

    async def drained(self) -> None:
        """Waits until everything that was settled is answered."""
        self.flush()
        while self._tasks:
            await asyncio.wait(self._tasks)


def _told(waiting: dict[str, Settled], error: errors.Error) -> dict[str, Settled]:
    """Tells the outcome that is known. Returns those to send again."""
    again: dict[str, Settled] = {}
    lost = error.details.get("lost", ())
    failed = error.details.get("failed", ())
    for delivery, settled in waiting.items():
        if delivery in lost:
            settled(
                errors.LeaseLost("another consumer has the message", request_id=error.request_id)
            )
        elif delivery in failed or (error.retryable and not failed):
            again[delivery] = settled
        elif lost or failed:
            settled(None)
        else:
            settled(error)
    return again
