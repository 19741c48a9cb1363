"""A consumer of a queue: takes deliveries, and keeps their leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from . import errors, otel
from .answers import check_delivery
from .attachment import Attached
from .codec import Codec
from .connection import CLOSING, Connection
from .job import LEASE, Job
from .link import BrokenServer
from .pending import Policy
from .settle import Settled, Settler
from .wire import milliseconds, payload_in

T = TypeVar("T")
#: A server counts a delivery whose lease has ended as free before the client knows of it. So one
#: that keeps to the credits may have sent more; one that does not sends more than so many times.
TOLERANCE = 4


class Consumer(Attached[dict[str, Any]], Generic[T]):
    """The deliveries of a queue, on whichever connection the client has.

    Use it with `async with`, and iterate over it. A client has one consumer of a queue.
    """

    def __init__(
        self,
        connection: Connection,
        queue: str,
        codec: Codec[T],
        credits: int,
        lease: float = LEASE,
        on_invalid: Callable[[errors.InvalidMessage], None] | None = None,
    ) -> None:
        super().__init__(connection, connection.queues)
        self.queue = queue
        self.credits = credits
        self.requests = connection.requests
        self.call = connection.call
        self.traced = otel.active()
        self.held: dict[str, Job[T]] = {}
        self._codec = codec
        self._lease = lease
        self._on_invalid = on_invalid
        self._arrivals: dict[str, float] = {}
        #: deliveries that are not settled, and when they came
        self._open: dict[str, float] = {}
        self._keeper: asyncio.TimerHandle | None = None
        #: deliveries whose work begins in this turn of the loop
        self._begins: list[str] = []
        self._extensions: set[asyncio.Task[None]] = set()
        self.settler = self._new_settler()

    def _new_settler(self) -> Settler:
        return Settler(self.requests, self.queue, self._idle)

    def _idle(self) -> bool:
        return not self.held

    # The life of a consumer.

    async def _exit(self, error: BaseException | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Begins to consume. `async with` does this."""
        self._register(self.queue, "already_consuming")
        try:
            await self.requests.perform(self._request())
        except BaseException as error:
            self._give_up(error, {"type": "cancel", "queue": self.queue})
            raise
        self._started = True
        self._keep()

    def _request(self) -> dict[str, Any]:
        return {"type": "consume", "queue": self.queue, "credits": self.credits, "begin": True}

    async def close(self) -> None:
        """Ends it. What was not settled goes back to the queue."""
        known = self._registered
        self._feed.end(discard=True)
        if known and self._connection.connected:
            try:
                async with asyncio.timeout(CLOSING):
                    await self.settler.drained()
                    body = {"type": "cancel", "queue": self.queue}
                    await self.requests.perform(body, policy=Policy.BOUND)
            except (errors.Error, TimeoutError):
                pass  # its deliveries go back with the connection
        self._lose_all()
        self._forget()

    def _forget(self) -> None:
        super()._forget()
        if self._keeper is not None:
            self._keeper.cancel()

    def stop_credits(self) -> None:
        """Takes no more: what waits here goes back with `cancel`."""
        self._feed.end(discard=True)

    # What the connection calls.

    def detach(self) -> None:
        """All leases end with their connection."""
        super().detach()
        self._lose_all()
        self.settler = self._new_settler()

    def _lose_all(self) -> None:
        self._feed.items.clear()
        self._arrivals.clear()
        self._open.clear()
        held, self.held = self.held, {}
        for job in held.values():
            job.mark_lost()

    def receive(self, message: dict[str, Any]) -> None:
        """Takes a delivery."""
        if self._feed.ended:
            return
        check_delivery(message)
        self._attempt = 0
        now = asyncio.get_running_loop().time()
        if max(len(self._open), len(self._feed.items)) >= self.credits * TOLERANCE:
            self._clear(now)
        delivery = message["delivery"]
        self._arrivals[delivery] = self._open[delivery] = now
        self._feed.put(message)

    def _clear(self, now: float) -> None:
        """Forgets the deliveries that the program has left to the end of their leases."""
        for delivery, since in list(self._open.items()):
            extended = delivery in self._arrivals or delivery in self.held
            if not extended and since + LEASE <= now:
                del self._open[delivery]
        most = self.credits * TOLERANCE
        if max(len(self._open), len(self._feed.items)) >= most:
            raise BrokenServer(f"the server has sent more than its {self.credits} credits allow")

    def freeing(self, delivery: str, settled: Settled) -> Settled:
        """What is called when a delivery is settled, which frees its credit."""

        def freed(error: Exception | None) -> None:
            self._open.pop(delivery, None)
            settled(error)

        return freed

    def ended(self, error: errors.Error) -> None:
        """The server has ended it, and with it all leases."""
        self.detach()
        super().ended(error)

    def shut(self, error: Exception | None) -> None:
        """The client has ended."""
        self._lose_all()
        super().shut(error)

    # What the program calls.

    def __aiter__(self) -> AsyncIterator[Job[T]]:
        return self

    async def __anext__(self) -> Job[T]:
        job = await self.take()
        if job is None:
            raise StopAsyncIteration
        return job

    async def take(self) -> Job[T] | None:
        """The next job; None at the end."""
        feed = self._feed
        self._check()
        while feed.items or await feed.wait():
            raw = feed.items.popleft()
            try:
                value = self._codec.decode(payload_in(raw))
            except Exception as reason:
                self._invalid(raw, reason)
            else:
                if await self._begin(raw):
                    return Job(raw, value, self)
        return None

    async def _begin(self, raw: dict[str, Any]) -> bool:
        """Says that the work begins, before the program has the job: with others of this turn.

        It is false if the delivery was lost meanwhile.
        """
        delivery = raw["delivery"]
        if not self._begins:
            asyncio.get_running_loop().call_soon(self._tell_begins)
        self._begins.append(delivery)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if delivery in self._arrivals:
                self._feed.items.appendleft(raw)
            raise
        return delivery in self._arrivals

    def _tell_begins(self) -> None:
        begins = [delivery for delivery in self._begins if delivery in self._arrivals]
        self._begins.clear()
        for i in range(0, len(begins), 1000):
            some = begins[i : i + 1000]
            self.requests.tell_now({"type": "begin", "queue": self.queue, "deliveries": some})

    def _invalid(self, raw: dict[str, Any], reason: Exception) -> None:
        """A job that nobody can read becomes a dead letter."""
        bad: Job[Any] = Job(raw, payload_in(raw), self)
        text = f"position {bad.position}: {reason}"
        fields = {"reason": text[:256], "dead": True}
        self.settler.nack(bad.delivery, fields, self.freeing(bad.delivery, _ignore))
        error = errors.InvalidMessage(text, raw=bad)
        error.__cause__ = reason
        if self._on_invalid is None:
            raise error
        self._on_invalid(error)

    # Leases.

    def arrived(self, delivery: str) -> float:
        """When a delivery came. It does not wait any more."""
        return self._arrivals.pop(delivery, 0.0)

    def settling(self, job: Job[T]) -> None:
        """The work on a job has ended."""
        self.held.pop(job.delivery, None)
        if not self.held:
            self.settler.hurry()

    def _keep(self) -> None:
        """Extends the leases of which half is over. One timer serves all of them.

        The first lease of a delivery is the server's, however long the later ones are.
        """
        loop = asyncio.get_running_loop()
        shortest = min(self._lease, LEASE)
        self._keeper = loop.call_later(shortest / 4, self._keep)
        half = loop.time() - shortest / 2
        due = [d for d, since in self._arrivals.items() if since <= half]
        due += [d for d, job in self.held.items() if job.leased <= half]
        for i in range(0, len(due), 1000):
            task = loop.create_task(self._extend(due[i : i + 1000]))
            self._extensions.add(task)
            task.add_done_callback(self._extensions.discard)

    async def _extend(self, due: list[str]) -> None:
        now = asyncio.get_running_loop().time()
        for delivery in due:
            if delivery in self._arrivals:
                self._arrivals[delivery] = now
            elif delivery in self.held:
                self.held[delivery].leased = now
        body = {
            "type": "extend",
            "queue": self.queue,
            "deliveries": due,
            "lease_ms": milliseconds(self._lease),
        }
        try:
            await self.requests.perform(body, policy=Policy.BOUND, size=32 * len(due))
        except errors.Error as error:
            for delivery in error.details.get("lost", ()):
                self._lose(delivery)

    def _lose(self, delivery: str) -> None:
        self._arrivals.pop(delivery, None)
        self._open.pop(delivery, None)
        waiting = [m for m in self._feed.items if m["delivery"] != delivery]
        self._feed.items.clear()
        self._feed.items.extend(waiting)
        job = self.held.pop(delivery, None)
        if job is not None:
            job.mark_lost()


def _ignore(error: Exception | None) -> None:
    """The server delivers the job again if it was not told."""
