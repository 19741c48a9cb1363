"""A delivery of a queue, as the program sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from . import errors, options, otel
from .pending import Policy
from .settle import Settled
from .wire import milliseconds

if TYPE_CHECKING:
    from .consumer import Consumer

T = TypeVar("T")
LEASE = 30.0
_REASON = 1024


class Retry(Exception):
    """A handler raises this: the job comes again after `after` seconds."""

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        super().__init__(reason)
        options.seconds("after", after)
        self.after = after


class Dead(Exception):
    """A handler raises this: the job becomes a dead letter at once."""


class Job(Generic[T]):
    """A message of a queue, and the lease on it.

    `async with job:` acknowledges it at the end, or tells the queue that it has failed,
    and extends its lease meanwhile.
    """

    def __init__(self, raw: Mapping[str, Any], value: T, consumer: Consumer[T]) -> None:
        self.value = value
        self.queue: str = raw["queue"]
        self.delivery: str = raw["delivery"]
        #: 1 for the first delivery of the message
        self.attempt: int = raw["attempt"]
        self.position: int = raw["position"]
        self.key: str | None = raw.get("key")
        self.headers: Mapping[str, Any] = raw.get("headers") or {}
        #: what the handler of a worker has raised, for `on_done`
        self.error: Exception | None = None
        self._time: str = raw["time"]
        self._consumer = consumer
        self._settler = consumer.settler
        self._settled = False
        self._lost = False
        self._span: Any = None
        #: when its lease was last extended, by the clock of the loop
        self.leased = consumer.arrived(self.delivery)
        #: called when the lease is lost
        self.on_lost: Callable[[], object] | None = None

    def __repr__(self) -> str:
        return f"<Job {self.queue} {self.position} attempt {self.attempt} {self.value!r}>"

    @property
    def time(self) -> datetime:
        """When the message was stored."""
        return datetime.fromisoformat(self._time)

    @property
    def lost(self) -> bool:
        """Whether the lease is lost. The result of the work does not count any more."""
        return self._lost or self._settler is not self._consumer.settler

    def mark_lost(self) -> None:
        """The lease is lost: tells the handler."""
        self._lost = True
        if self.on_lost is not None:
            self.on_lost()

    def settle_ack(self, settled: Settled) -> None:
        """Acknowledges, and calls `settled` with the outcome."""
        self._settled = True
        self._consumer.settling(self)
        if self.lost:
            settled(_lost())
        else:
            self._settler.ack(self.delivery, self._freeing(settled))

    def settle_nack(self, fields: dict[str, Any], settled: Settled) -> None:
        """Says that the work has failed, and calls `settled` with the outcome."""
        self._settled = True
        self._consumer.settling(self)
        if self.lost:
            settled(_lost())
        else:
            self._settler.nack(self.delivery, fields, self._freeing(settled))

    def _freeing(self, settled: Settled) -> Settled:
        return self._consumer.freeing(self.delivery, settled)

    async def ack(self) -> None:
        """The work is done: the message leaves the queue. Returns after the commit."""
        outcome = _Outcome()
        self.settle_ack(outcome)
        await outcome.future

    async def nack(self, reason: str = "", *, delay: float | None = None) -> None:
        """The work has failed: the message comes again, after `delay` seconds if given."""
        fields = nack_fields(reason, delay)
        outcome = _Outcome()
        self.settle_nack(fields, outcome)
        await outcome.future

    async def dead(self, reason: str = "") -> None:
        """Nobody can do the work: the message becomes a dead letter at once."""
        outcome = _Outcome()
        self.settle_nack({**nack_fields(reason, None), "dead": True}, outcome)
        await outcome.future

    async def extend(self, seconds: float = LEASE) -> None:
        """The work takes longer: the lease ends `seconds` from now."""
        options.positive_seconds("seconds", seconds)
        if self.lost:
            raise _lost()
        body = {
            "type": "extend",
            "queue": self.queue,
            "deliveries": [self.delivery],
            "lease_ms": milliseconds(seconds),
        }
        await self._consumer.requests.perform(body, policy=Policy.BOUND)
        self.leased = asyncio.get_running_loop().time()

    async def __aenter__(self) -> Self:
        self._consumer.held[self.delivery] = self
        self._span = otel.process(self._consumer.traced, self.queue, self.headers)
        self._span.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._span.__exit__(kind, error, trace)
        if self._settled:
            return False
        if error is None:
            await self.ack()
        elif isinstance(error, Exception):
            outcome = _Outcome()
            self.settle_nack(failure_fields(error), outcome)
            try:
                await outcome.future
            except errors.Error as second:
                error.add_note(f"and the queue was not told: {second}")
        else:
            self._consumer.settling(self)
        return isinstance(error, (Retry, Dead))


def nack_fields(reason: str, delay: float | None) -> dict[str, Any]:
    """The fields of a `nack`."""
    options.seconds("delay", delay)
    fields: dict[str, Any] = {}
    if reason:
        short = reason.encode()[:_REASON].decode(errors="ignore").replace("\0", "")
        fields["reason"] = short
    if delay is not None:
        fields["delay_ms"] = milliseconds(delay)
    return fields


def failure_fields(error: Exception) -> dict[str, Any]:
    """The fields of the `nack` for what a handler has raised."""
    text = str(error) or type(error).__name__
    if isinstance(error, Dead):
        return {**nack_fields(text, None), "dead": True}
    if isinstance(error, Retry):
        return nack_fields(text, error.after)
    return nack_fields(text, None)


class _Outcome:
    """A future of a settlement."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


def _lost() -> errors.LeaseLost:
    return errors.LeaseLost("another consumer has the message, or will get it")
