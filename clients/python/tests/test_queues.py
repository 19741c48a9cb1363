"""Queues: workers, leases, and consumers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from conftest import Real, until
from fake import FakeServer, Peer

import tidewire
from tidewire.worker import Outcome

Jobs = tidewire.Job[Any]


async def consuming(fake: FakeServer, queue: str = "q", credits: int = 1) -> Peer:
    """A connection that consumes."""
    peer = await fake.peer()
    request = await peer.take("consume")
    assert (request["queue"], request["credits"]) == (queue, credits)
    await peer.ok(request)
    return peer


async def test_outcomes_of_a_handler(fake: FakeServer) -> None:
    done: list[Outcome] = []
    async with tidewire.connect(fake.url) as tw:

        @tw.queue("q").worker(on_done=lambda job, outcome: done.append(outcome))
        async def work(job: Jobs) -> None:
            if job.value == "fail":
                raise RuntimeError("no luck")
            if job.value == "retry":
                raise tidewire.Retry("later", after=30)
            if job.value == "dead":
                raise tidewire.Dead("gave up")

        peer = await consuming(fake)
        expected: list[tuple[str, str, dict[str, Any]]] = [
            ("ack", "ack", {}),
            ("fail", "nack", {"reason": "no luck"}),
            ("retry", "nack", {"reason": "later", "delay_ms": 30_000}),
            ("dead", "nack", {"reason": "gave up", "dead": True}),
        ]
        for number, (value, kind, fields) in enumerate(expected):
            await peer.delivery("q", str(number), value)
            request = await peer.take(kind)
            assert request["deliveries"] == [str(number)]
            assert fields.items() <= request.items()
            await peer.ok(request, count=1)
        await until(lambda: len(done) == 4)
        assert done == ["acked", "nacked", "nacked", "nacked"]
        stopping = asyncio.ensure_future(work.stop())
        await peer.ok(await peer.take("cancel"))
        await stopping


async def test_what_the_program_takes_begins(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.queue("q").consume(credits=3).__aenter__())
        peer = await fake.peer()
        request = await peer.take("consume")
        assert request["begin"] is True
        await peer.ok(request)
        jobs = await opening
        for number in range(3):
            await peer.delivery("q", str(number))
        await until(lambda: len(jobs._feed.items) == 3)
        first = await anext(jobs)
        said = await peer.take("begin")
        assert said == {"type": "begin", "queue": "q", "deliveries": [first.delivery]}
        cancelled = asyncio.ensure_future(anext(jobs))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert (await anext(jobs)).delivery == "1"  # it is still there
        both = await asyncio.gather(first.ack(), asyncio.wait_for(_answer(peer, "ack"), 60))
        assert both[1]["deliveries"] == ["0"]
        closing = asyncio.ensure_future(jobs.close())
        await peer.ok(await peer.take("cancel"))
        await closing


async def _answer(peer: Peer, kind: str) -> dict[str, Any]:
    request = await peer.take(kind)
    await peer.ok(request, count=1)
    return request


async def test_acknowledgements_go_out_together(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        begin = asyncio.Event()

        @tw.queue("q").worker(concurrency=3)
        async def work(job: Jobs) -> None:
            await begin.wait()

        peer = await consuming(fake, credits=3)
        for number in range(3):
            await peer.delivery("q", str(number))
        await until(lambda: len(work._consumer.held) == 3)
        begin.set()
        request = await peer.take("ack")
        assert sorted(request["deliveries"]) == ["0", "1", "2"]
        await peer.error(request, "lease_lost", lost=["1"])
        stopping = asyncio.ensure_future(work.stop())
        await peer.ok(await peer.take("cancel"))
        await stopping


async def test_leases_are_extended_and_lost(fake: FakeServer) -> None:
    done: list[Outcome] = []
    async with tidewire.connect(fake.url) as tw:
        cancelled = 0

        @tw.queue("q").worker(lease=0.04, on_done=lambda job, outcome: done.append(outcome))
        async def work(job: Jobs) -> None:
            nonlocal cancelled
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1
                raise

        peer = await consuming(fake)
        await peer.delivery("q", "1")
        extend = await peer.take("extend")
        assert (extend["deliveries"], extend["lease_ms"]) == (["1"], 40)
        await peer.error(extend, "lease_lost", lost=["1"])
        await until(lambda: done == ["lost"])
        await peer.delivery("q", "2")
        await peer.take("extend")
        peer.cut()
        await until(lambda: done == ["lost", "lost"])
        assert cancelled == 2
        peer = await consuming(fake)
        await peer.delivery("q", "3")
        await peer.ok(await peer.take("extend"), count=1)
        stopping = asyncio.ensure_future(work.stop(drain=0))
        while (request := await peer.take())["type"] != "cancel":
            await peer.ok(request, count=1)
        await peer.ok(request)
        await stopping


async def test_a_long_lease_is_extended_before_the_first_one_ends(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.consumer.LEASE", 0.04)
    async with tidewire.connect(fake.url) as tw:

        @tw.queue("q").worker(lease=3600)
        async def work(job: Jobs) -> None:
            await asyncio.Event().wait()

        peer = await consuming(fake)
        await peer.delivery("q", "1")
        extend = await peer.take("extend")
        assert (extend["deliveries"], extend["lease_ms"]) == (["1"], 3_600_000)
        await peer.ok(extend, count=1)
        stopping = asyncio.ensure_future(work.stop(drain=0))
        while (request := await peer.take())["type"] != "cancel":
            await peer.ok(request, count=1)
        await peer.ok(request)
        await stopping


async def test_an_ack_of_a_lost_connection(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.queue("q").consume(credits=2).__aenter__())
        peer = await consuming(fake, credits=2)
        jobs = await opening
        await peer.delivery("q", "1")
        await peer.delivery("q", "2")
        first, second = await anext(jobs), await anext(jobs)
        acking = asyncio.ensure_future(first.ack())
        await peer.take("ack")
        peer.cut()
        with pytest.raises(tidewire.LeaseLost):
            await acking
        assert second.lost
        with pytest.raises(tidewire.LeaseLost):
            await second.ack()
        peer = await consuming(fake, credits=2)
        closing = asyncio.ensure_future(jobs.close())
        await peer.ok(await peer.take("cancel"))
        await closing


async def test_a_dropped_queue_ends_the_worker(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:

        async def work(job: Jobs) -> None:
            """Never called."""

        working = asyncio.ensure_future(tw.queue("q").work(work))
        peer = await consuming(fake)
        gone: dict[str, Any] = {"message": "", "retryable": False}
        await peer.send(type="error", queue="q", code="queue_gone", **gone)
        with pytest.raises(tidewire.Error, match="queue_gone"):
            await working


# Against a real server.


async def test_a_worker(real: Real) -> None:
    seen: list[tuple[int, int]] = []
    async with tidewire.connect(real.url) as tw:
        queue = tw.queue(real.create("queues"))
        finished = asyncio.Event()

        @queue.worker(concurrency=4)
        async def work(job: Jobs) -> None:
            seen.append((job.value, job.attempt))
            if job.value == 3 and job.attempt == 1:
                raise tidewire.Retry(after=0.01)
            if len(seen) == 11:
                finished.set()

        await queue.enqueue_all(range(10))
        await finished.wait()
        await work.stop()
    assert sorted(seen) == sorted([(n, 1) for n in range(10)] + [(3, 2)])


async def test_a_handler_that_is_no_coroutine(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        queue = tw.queue(real.create("queues"))
        finished = asyncio.Event()
        loop = asyncio.get_running_loop()

        @queue.worker()
        def work(job: Jobs) -> None:
            assert threading.current_thread() is not threading.main_thread()
            loop.call_soon_threadsafe(finished.set)

        await queue.enqueue(1)
        await finished.wait()
        await work.stop()


async def test_work_by_hand(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        queue = tw.queue(real.create("queues"))
        unique: Any = {"unique_key": "u", "unique_for": 60.0}
        first = await queue.enqueue("a", **unique)
        again = await queue.enqueue("a", **unique)
        assert (first.duplicate, again.duplicate) == (False, True)
        assert first.position == again.position
        async with queue.consume(credits=2) as jobs:
            job = await anext(jobs)
            with pytest.raises(KeyError):
                async with job:
                    raise KeyError("x")
            await queue.enqueue("b")
            async for job in jobs:
                async with job:
                    assert job.value == "b"
                    await job.extend(60)
                break


async def test_two_consumers_of_a_queue(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        queue = tw.queue(real.create("queues"))
        async with queue.consume():
            with pytest.raises(tidewire.Error, match="already_consuming"):
                async with queue.consume():
                    """Not reached."""


async def test_stop_lets_handlers_end(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        queue = tw.queue(real.create("queues"))
        begun, ended = asyncio.Event(), False

        @queue.worker()
        async def work(job: Jobs) -> None:
            nonlocal ended
            begun.set()
            await asyncio.sleep(0.05)
            ended = True

        await queue.enqueue(1)
        await begun.wait()
        await work.stop()
        assert ended
        async with queue.consume() as jobs:
            waiting = asyncio.ensure_future(anext(jobs))
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            assert not done
            waiting.cancel()


async def test_a_handler_that_awaits_something_cancelled(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:

        @tw.queue("q").worker()
        async def work(job: Jobs) -> None:
            if job.value == "bad":
                future = asyncio.get_running_loop().create_future()
                future.cancel()
                await future

        peer = await consuming(fake)
        for number, (value, kind) in enumerate([("bad", "nack"), ("good", "ack")]):
            await peer.delivery("q", str(number), value)
            await peer.ok(await peer.take(kind), count=1)
        stopping = asyncio.ensure_future(work.stop())
        await peer.ok(await peer.take("cancel"))
        await stopping
