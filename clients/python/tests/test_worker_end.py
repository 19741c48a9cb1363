"""How a worker ends when its handlers do not, and what is told of those that fail."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import until
from fake import FakeServer, Peer

import tidewire

Jobs = tidewire.Job[Any]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long."""
    monkeypatch.setattr("tidewire.worker.CANCELLED", 0.05)
    monkeypatch.setattr("tidewire.worker.DRAIN", 0.05)


async def consuming(fake: FakeServer, deliveries: int) -> Peer:
    """A connection that consumes, and has so many jobs."""
    peer = await fake.peer()
    await peer.ok(await peer.take("consume"))
    for number in range(deliveries):
        await peer.delivery("q", str(number))
    return peer


async def answer(peer: Peer) -> list[dict[str, Any]]:
    """Answers everything, up to `cancel`."""
    seen = []
    while True:
        request = await peer.take()
        seen.append(request)
        await peer.ok(request, count=1)
        if request["type"] == "cancel":
            return seen


class Stubborn:
    """A handler that ends when the test says so, and ignores its cancellation."""

    def __init__(self) -> None:
        self.running = 0
        self.over = asyncio.Event()

    async def __call__(self, job: Jobs) -> None:
        self.running += 1
        while not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                continue
        self.running -= 1


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def stop(worker: tidewire.Worker[Any], tw: tidewire.Client) -> None:
    await worker.stop(drain=0.05)


async def close(worker: tidewire.Worker[Any], tw: tidewire.Client) -> None:
    await tw.close()


@pytest.mark.parametrize("end", [stop, close])
async def test_handlers_that_ignore_their_cancellation(
    fake: FakeServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[tidewire.Worker[Any], tidewire.Client], Any],
) -> None:
    stubborn = Stubborn()

    async def handler(job: Jobs) -> None:
        await stubborn(job)

    stopping = tidewire.Worker.stop
    monkeypatch.setattr(
        tidewire.Worker, "stop", lambda self, drain=0.05: stopping(self, drain=drain)
    )
    tw = tidewire.connect(fake.url)
    worker = tw.queue("q").worker(concurrency=2)(handler)
    worker.start()
    peer = await consuming(fake, 2)
    await until(lambda: stubborn.running == 2)
    answering = asyncio.ensure_future(answer(peer))
    await asyncio.wait_for(end(worker, tw), 10)
    assert warnings(caplog) == ["handlers of q that still run, although they were cancelled: 2"]
    assert [request["type"] for request in await answering] == ["cancel"]
    await worker  # it has ended as it should
    stubborn.over.set()
    await until(lambda: not stubborn.running)
    await tw.close()
    assert peer.messages.empty()  # the result does not count any more


async def test_a_handler_in_a_thread(fake: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    begun, over = threading.Event(), threading.Event()

    def handler(job: Jobs) -> None:
        begun.set()
        over.wait()

    async with tidewire.connect(fake.url) as tw:
        worker = tw.queue("q").worker()(handler)
        peer = await consuming(fake, 1)
        await until(begun.is_set)
        answering = asyncio.ensure_future(answer(peer))
        await worker.stop(drain=0.05)
        await answering
        assert warnings(caplog) == ["handlers of q that still run, although they were cancelled: 1"]
        over.set()


async def test_work_that_is_cancelled(fake: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn()
    async with tidewire.connect(fake.url) as tw:
        work = tw.queue("q").work(stubborn.__call__, drain=0.05)
        working = asyncio.ensure_future(work)
        peer = await consuming(fake, 1)
        await until(lambda: stubborn.running)
        answering = asyncio.ensure_future(answer(peer))
        working.cancel()
        await asyncio.wait([working], timeout=10)
        assert working.cancelled()
        await answering
        stubborn.over.set()
        await until(lambda: not stubborn.running)


async def test_handlers_that_end_need_no_warning(
    fake: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(job: Jobs) -> None:
        await asyncio.Event().wait()

    async with tidewire.connect(fake.url) as tw:
        worker = tw.queue("q").worker()(handler)
        peer = await consuming(fake, 1)
        await until(lambda: worker._consumer.held)
        answering = asyncio.ensure_future(answer(peer))
        await worker.stop(drain=0)
        await answering
        await worker
    assert not warnings(caplog)


async def test_a_handler_that_fails_is_logged(
    fake: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(job: Jobs) -> None:
        if job.position == 0:
            raise tidewire.Retry("later")
        if job.position == 1:
            raise tidewire.Dead("gave up")
        raise KeyError("what failed")

    async with tidewire.connect(fake.url) as tw:
        worker = tw.queue("q").worker(concurrency=3)(handler)
        peer = await consuming(fake, 3)
        for _ in range(3):
            await peer.ok(await peer.take("nack"), count=1)
        answering = asyncio.ensure_future(answer(peer))
        await worker.stop()
        await answering
    assert warnings(caplog) == ["a job of q has failed"]
    (logged,) = caplog.records
    assert logged.name == "tidewire"
    assert logged.exc_info is not None and "what failed" in str(logged.exc_info[1])
    assert "in handler" in caplog.text  # the traceback


async def test_a_callback_for_outcomes_is_told_in_place_of_the_log(
    fake: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    async def handler(job: Jobs) -> None:
        raise KeyError("what failed")

    async with tidewire.connect(fake.url) as tw:
        done = tw.queue("q").worker(on_done=lambda job, how: told.append(f"{how} {job.error!r}"))
        worker = done(handler)
        peer = await consuming(fake, 1)
        await peer.ok(await peer.take("nack"), count=1)
        await until(lambda: told)
        answering = asyncio.ensure_future(answer(peer))
        await worker.stop()
        await answering
    assert told == ["nacked KeyError('what failed')"]
    assert not warnings(caplog)
