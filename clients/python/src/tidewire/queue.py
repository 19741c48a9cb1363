"""Queues: messages for consumers, each delivered to one of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from . import errors, options, otel
from .codec import Codec
from .connection import Connection
from .consumer import Consumer
from .job import LEASE, Job
from .message import Ack, ack_of
from .wire import message_of, milliseconds
from .worker import DRAIN, Handler, Outcome, Worker

T = TypeVar("T")


class Queue(Generic[T]):
    """A queue of the server. `Client.queue` makes one."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        codec: Codec[T],
        background: Callable[[Worker[Any]], None],
    ) -> None:
        self.name = name
        self._connection = connection
        self._codec = codec
        self._background = background

    def _message(
        self, value: T, key: str | None, headers: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], int]:
        message, size = message_of(self._codec.encode(value), key, otel.inject(headers))
        return message, size + 64

    async def enqueue(
        self,
        value: T,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        priority: int | None = None,
        unique_key: str | None = None,
        unique_for: float | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Stores a job, and returns after the commit.

        It is delivered after `delay` seconds. With `unique_key` it is stored once in
        `unique_for` seconds, which begin with the first: a further one has `duplicate`.
        """
        message, size = self._message(value, key, headers)
        body = {"type": "enqueue", "queue": self.name, **message}
        body |= _delayed(delay, priority)
        if unique_key is None and unique_for is not None:
            raise ValueError("unique_for needs unique_key")
        if unique_key is not None:
            if unique_for is None:
                raise ValueError("unique_key needs unique_for")
            options.positive_seconds("unique_for", unique_for)
            body |= {"unique_key": unique_key, "unique_ms": milliseconds(unique_for)}
        requests = self._connection.requests
        return ack_of(await requests.perform(body, numbered=True, size=size, timeout=timeout))

    async def enqueue_all(
        self,
        values: Iterable[T],
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        priority: int | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Stores jobs, all or none."""
        made = [self._message(value, key, headers) for value in values]
        if not made:
            raise ValueError("there is no job")
        body = {"type": "enqueue", "queue": self.name, "messages": [m for m, _ in made]}
        body |= _delayed(delay, priority)
        size = sum(size for _, size in made)
        requests = self._connection.requests
        return ack_of(await requests.perform(body, numbered=True, size=size, timeout=timeout))

    def consume(
        self,
        *,
        credits: int = 10,
        lease: float = LEASE,
        on_invalid: Callable[[errors.InvalidMessage], None] | None = None,
    ) -> Consumer[T]:
        """A consumer: use it with `async with`, and iterate over its jobs.

        At most `credits` jobs are with the program that are not settled. A job whose payload
        the codec refuses becomes a dead letter, and goes to `on_invalid`.
        """
        options.count("credits", credits)
        options.positive_seconds("lease", lease)
        return Consumer(self._connection, self.name, self._codec, credits, lease, on_invalid)

    def worker(
        self,
        *,
        concurrency: int = 1,
        lease: float = LEASE,
        on_done: Callable[[Job[T], Outcome], None] | None = None,
        on_invalid: Callable[[errors.InvalidMessage], None] | None = None,
    ) -> Callable[[Handler[T]], Worker[T]]:
        """A decorator: the function works on the jobs of the queue, in the background.

        It begins at once, or with the client's `async with`. If it fails, that raises.
        `on_done` is told what became of each job, with what the function has raised in
        `job.error`. Without it, a failure of the function is logged.
        """

        _check_worker(concurrency, lease)

        def decorate(handler: Handler[T]) -> Worker[T]:
            worker = self._worker(handler, concurrency, lease, on_done, on_invalid)
            self._background(worker)
            return worker

        return decorate

    async def work(
        self,
        handler: Handler[T],
        *,
        concurrency: int = 1,
        lease: float = LEASE,
        drain: float = DRAIN,
        on_done: Callable[[Job[T], Outcome], None] | None = None,
        on_invalid: Callable[[errors.InvalidMessage], None] | None = None,
    ) -> None:
        """Works until it is cancelled. Then handlers may end for `drain` seconds.

        It does not wait for a handler that still runs 1 s after it was cancelled.
        """
        _check_worker(concurrency, lease)
        options.seconds("drain", drain)
        worker = self._worker(handler, concurrency, lease, on_done, on_invalid)
        try:
            await worker.wait()
        finally:
            await worker.stop(drain=drain)

    def _worker(
        self,
        handler: Handler[T],
        concurrency: int,
        lease: float,
        on_done: Callable[[Job[T], Outcome], None] | None,
        on_invalid: Callable[[errors.InvalidMessage], None] | None,
    ) -> Worker[T]:
        consumer = Consumer(
            self._connection, self.name, self._codec, concurrency, lease, on_invalid or _log
        )
        return Worker(consumer, handler, concurrency=concurrency, on_done=on_done)


def _check_worker(concurrency: int, lease: float) -> None:
    options.count("concurrency", concurrency)
    options.positive_seconds("lease", lease)


def _delayed(delay: float | None, priority: int | None) -> dict[str, Any]:
    options.seconds("delay", delay)
    options.optional_count("priority", priority)
    fields: dict[str, Any] = {}
    if delay is not None:
        fields["delay_ms"] = milliseconds(delay)
    if priority is not None:
        fields["priority"] = priority
    return fields


def _log(error: errors.InvalidMessage) -> None:
    from .worker import logger

    logger.warning("a job is a dead letter now: %s", error)
