"""Workers: handlers for the jobs of a queue."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast

from . import errors, options, otel
from .consumer import Consumer
from .job import Dead, Job, Retry, failure_fields, nack_fields

T = TypeVar("T")
DRAIN = 10.0
#: how long a handler that was cancelled may take to end, before nobody waits for it
CANCELLED = 1.0

Handler = Callable[[Job[T]], Awaitable[None]] | Callable[[Job[T]], None]
Outcome = Literal["acked", "nacked", "lost"]

logger = logging.getLogger("tidewire")


class Worker(Generic[T]):
    """Runs a handler for each job. The handler returns: done. It raises: failed.

    Call it with a job to run the handler alone, as a test does.
    """

    def __init__(
        self,
        consumer: Consumer[T],
        handler: Handler[T],
        *,
        concurrency: int,
        on_done: Callable[[Job[T], Outcome], None] | None,
    ) -> None:
        self.handler = handler
        self._consumer = consumer
        self._concurrency = concurrency
        self._on_done = on_done
        self._slots: list[asyncio.Task[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        #: `stop` does not wait for the handlers any longer
        self._cut_short = False
        #: jobs whose handlers run in threads, which nothing can cancel
        self._threads: set[Job[T]] = set()

    def __call__(self, job: Job[T]) -> Any:
        return self.handler(job)

    def start(self) -> asyncio.Task[None]:
        """Begins to work in the background."""
        if self._task is None:
            name = f"tidewire worker of {self._consumer.queue}"
            self._task = asyncio.get_running_loop().create_task(self._run(), name=name)
        return self._task

    async def ready(self) -> None:
        """Waits until the server delivers."""
        task = self.start()
        waiting = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            await task

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()

    async def wait(self) -> None:
        """Waits until the worker has ended, and raises what has ended it."""
        await asyncio.shield(self.start())

    async def stop(self, *, drain: float = DRAIN) -> None:
        """Takes no more jobs, lets handlers end for `drain` seconds, and cancels the others.

        It does not wait for a handler that still runs 1 s after it was cancelled.
        """
        options.seconds("drain", drain)
        task = self._task
        if task is None or task.done():
            return
        if not self._ready.is_set():
            task.cancel()
        self._consumer.stop_credits()
        if self._slots:
            _, running = await asyncio.wait(self._slots, timeout=drain)
            if running:
                self._cut_short = True
                task.cancel()
        await asyncio.wait([task])

    async def _run(self) -> None:
        consumer = self._consumer
        await consumer.open()
        loop = asyncio.get_running_loop()
        self._slots = [loop.create_task(self._slot()) for _ in range(self._concurrency)]
        self._ready.set()
        try:
            done, _ = await asyncio.wait(self._slots, return_when=asyncio.FIRST_EXCEPTION)
            for slot in done:
                if not slot.cancelled():
                    slot.result()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._cut_short or task is None:
                raise
            task.uncancel()  # it was `stop`
        finally:
            await self._end_handlers()
            await consumer.close()

    async def _end_handlers(self) -> None:
        """Cancels those that run. One that ignores it is left alone: its job comes again."""
        for slot in self._slots:
            slot.cancel()
        _, running = await asyncio.wait(self._slots, timeout=CANCELLED)
        count = len(running) + len(self._threads)
        if count:
            text = "handlers of %s that still run, although they were cancelled: %d"
            logger.warning(text, self._consumer.queue, count)

    async def _slot(self) -> None:
        """Works on one job after the other: a task for each slot, not for each job."""
        while True:
            job = await self._consumer.take()
            if job is None:
                return
            await self._work(job)

    async def _work(self, job: Job[T]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._consumer.held[job.delivery] = job
        job.on_lost = task.cancel
        try:
            with otel.process(self._consumer.traced, job.queue, job.headers):
                await self._handle(job)
        except asyncio.CancelledError as error:
            if not job.lost:
                if task.cancelling():
                    raise
                job.settle_nack(nack_fields(repr(error), None), self._outcome(job, "nacked"))
                return
            self._done(job, "lost")
        except Exception as error:
            job.error = error
            told = isinstance(error, (Retry, Dead, errors.LeaseLost)) or self._on_done is not None
            if not told:
                logger.warning("a job of %s has failed", job.queue, exc_info=error)
            job.settle_nack(failure_fields(error), self._outcome(job, "nacked"))
        else:
            job.settle_ack(self._outcome(job, "acked"))
        finally:
            job.on_lost = None
            if job.lost and task.cancelling():
                task.uncancel()  # the cancellation was for this job alone

    async def _handle(self, job: Job[T]) -> None:
        if inspect.iscoroutinefunction(self.handler):
            await self.handler(job)
            return
        result = await asyncio.to_thread(self._in_thread, job)
        if inspect.isawaitable(result):
            await result

    def _in_thread(self, job: Job[T]) -> Any:
        self._threads.add(job)
        try:
            return cast(Callable[[Job[T]], Any], self.handler)(job)
        finally:
            self._threads.discard(job)

    def _outcome(self, job: Job[T], outcome: Outcome) -> Callable[[Exception | None], None]:
        def settled(error: Exception | None) -> None:
            self._done(job, outcome if error is None else "lost")

        return settled

    def _done(self, job: Job[T], outcome: Outcome) -> None:
        if self._on_done is not None:
            self._consumer.call(partial(self._on_done, job), outcome)
