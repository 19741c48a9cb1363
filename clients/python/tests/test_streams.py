"""Subscriptions: resumed, bounded by credits, and shared."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import Real, until
from fake import FakeServer

import tidewire


async def test_resume_after_what_was_handed_out(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.stream("s").subscribe().__aenter__())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        assert request["credits"] == 256
        await peer.ok(request, position=10)
        await peer.message(request, 11, "a")
        await peer.message(request, 12, "b")
        sub = await opening
        assert sub.position == 10
        assert (await anext(sub)).value == "a"
        peer.cut()
        peer = await fake.peer()
        request = await peer.take("subscribe")
        assert request["after"] == 11
        await peer.ok(request, position=11)
        await peer.message(request, 12, "b")
        message = await anext(sub)
        assert (message.value, message.position, sub.position) == ("b", 12, 12)
        await sub.close()
        await peer.take("unsubscribe")


async def test_nothing_handed_out_resumes_where_it_began(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.stream("s").subscribe().__aenter__())
        peer = await fake.peer()
        await peer.ok(await peer.take("subscribe"), position=10)
        await opening
        peer.cut()
        peer = await fake.peer()
        assert (await peer.take("subscribe"))["after"] == 10


async def test_credits_are_granted_as_the_program_takes(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.stream("s").subscribe(credits=4).__aenter__())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        await peer.ok(request, position=0)
        for position in range(1, 5):
            await peer.message(request, position, position)
        sub = await opening
        await anext(sub)
        assert peer.messages.empty()
        await anext(sub)
        credit = await peer.take("credit")
        assert (credit["n"], credit["subscription"]) == (2, request["subscription"])


async def test_filters_move_the_position(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.stream("s").subscribe(keys=["k"]).__aenter__())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        assert request["keys"] == ["k"]
        await peer.ok(request, position=0)
        await peer.message(request, 5, 1)
        marker = {"stream": "s", "subscription": request["subscription"], "position": 9}
        await peer.send(type="position", **marker)
        sub = await opening
        await until(lambda: len(sub._feed.items) == 2)
        assert sub.position == 0
        assert (await anext(sub)).position == 5
        waiting = asyncio.ensure_future(anext(sub))
        await until(lambda: sub.position == 9)
        peer.cut()
        peer = await fake.peer()
        request = await peer.take("subscribe")
        assert request["after"] == 9
        await peer.ok(request, position=9)
        await peer.message(request, 12, 2)
        assert (await waiting).position == 12


async def test_dropped_messages(fake: FakeServer) -> None:
    gaps: list[int] = []
    async with tidewire.connect(fake.url) as tw:
        stream = tw.stream("s")
        strict = asyncio.ensure_future(stream.subscribe(after=1).__aenter__())
        peer = await fake.peer()
        await peer.error(await peer.take("subscribe"), "too_old", oldest=50)
        with pytest.raises(tidewire.TooOld) as old:
            await strict
        assert old.value.oldest == 50
        sub = stream.subscribe(after=1, gaps="skip", on_gap=lambda gap: gaps.append(gap.oldest))
        opening = asyncio.ensure_future(sub.__aenter__())
        await peer.error(await peer.take("subscribe"), "too_old", oldest=50)
        request = await peer.take("subscribe")
        assert request["after"] == 49
        await peer.ok(request, position=49)
        await opening
        await peer.message(request, 50, 1)
        subscription = request["subscription"]
        ended: dict[str, Any] = {"message": "", "retryable": False, "oldest": 70}
        await peer.send(type="error", subscription=subscription, code="too_old", **ended)
        assert (await anext(sub)).position == 50
        waiting = asyncio.ensure_future(anext(sub))
        assert (await peer.take("subscribe"))["after"] == 69
        await until(lambda: gaps == [50, 70])
        waiting.cancel()


async def test_errors_end_the_iteration_or_pass(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.stream("s").subscribe(after=3).__aenter__())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        await peer.ok(request, position=3)
        sub = await opening
        name = request["subscription"]
        passing: dict[str, Any] = {"message": "", "retryable": True}
        await peer.send(type="error", subscription=name, code="unavailable", **passing)
        request = await peer.take("subscribe")
        assert request["after"] == 3
        await peer.ok(request, position=3)
        await peer.message(request, 4, 1)
        final: dict[str, Any] = {"message": "", "retryable": False}
        await peer.send(type="error", subscription=name, code="stream_gone", **final)
        await until(lambda: sub._feed.ended)
        assert (await anext(sub)).position == 4
        with pytest.raises(tidewire.Error, match="stream_gone"):
            await anext(sub)


async def test_shared_partitions(fake: FakeServer) -> None:
    told: list[tuple[str, list[int]]] = []
    async with tidewire.connect(fake.url) as tw:
        sub = tw.stream("s").subscribe(
            group="g",
            share=True,
            on_assigned=lambda p: told.append(("assigned", p)),
            on_revoked=lambda p: told.append(("revoked", p)),
        )
        opening = asyncio.ensure_future(sub.__aenter__())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        assert (request["group"], request["share"]) == ("g", True)
        await peer.ok(request)
        await opening
        name = {"stream": "s", "subscription": request["subscription"]}
        await peer.send(type="assigned", partitions=[0, 3], positions=[0, 0], **name)
        fields = {"time": "2026-11-26T08:05:07Z", "payload": "1", **name}
        await peer.send(type="message", partition=3, position=1, **fields)
        await peer.send(type="message", partition=0, position=2, **fields)
        await peer.send(type="revoked", partitions=[3], **name)
        await until(lambda: len(told) == 2)
        message = await anext(sub)
        assert (message.partition, message.position) == (0, 2)
        commit = asyncio.ensure_future(sub.commit(message))
        body = await peer.take("commit")
        assert (body["partition"], body["position"], body["group"]) == (0, 2, "g")
        await peer.error(body, "fenced")
        with pytest.raises(tidewire.Fenced):
            await commit
        peer.cut()
        peer = await fake.peer()
        assert (await peer.take("subscribe"))["share"]
        assert told == [("assigned", [0, 3]), ("revoked", [3]), ("revoked", [0])]


@dataclass
class Order:
    id: int
    total: float


async def test_messages_that_nobody_can_read(fake: FakeServer) -> None:
    bad: list[tidewire.InvalidMessage] = []
    async with tidewire.connect(fake.url) as tw:
        stream = tw.stream("s", type=Order)
        choices: list[dict[str, Any]] = [{"on_invalid": bad.append}, {}]
        for options in choices:
            opening = asyncio.ensure_future(stream.subscribe(after=0, **options).__aenter__())
            if not bad:
                peer = await fake.peer()
            request = await peer.take("subscribe")
            await peer.ok(request, position=0)
            await peer.message(request, 1, {"id": "x", "total": 1})
            await peer.message(request, 2, {"id": 2, "total": 1})
            sub = await opening
            if options:
                assert (await anext(sub)).value == Order(2, 1.0)
                assert bad[0].raw.position == 1
                await sub.close()
                await peer.take("unsubscribe")
            else:
                with pytest.raises(tidewire.InvalidMessage, match="position 1"):
                    await anext(sub)


async def test_a_subscription_needs_to_be_opened(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        with pytest.raises(RuntimeError, match="async with"):
            await anext(tw.stream("s").subscribe())
        with pytest.raises(ValueError, match="group"):
            tw.stream("s").subscribe(share=True)


async def test_close_ends_iterations(fake: FakeServer) -> None:
    tw = tidewire.connect(fake.url)
    opening = asyncio.ensure_future(tw.stream("s").subscribe().__aenter__())
    peer = await fake.peer()
    await peer.ok(await peer.take("subscribe"), position=0)
    sub = await opening

    async def iterate() -> list[Any]:
        return [m async for m in sub]

    iteration = asyncio.ensure_future(iterate())
    await asyncio.sleep(0)
    await tw.close()
    assert await iteration == []


# Against a real server.


async def test_history_and_live(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        orders = tw.stream(real.create("streams"), type=Order)
        first = await orders.publish(Order(1, 2.5), key="k", headers={"h": "x"})
        await orders.publish_all([Order(2, 1), Order(3, 1)])
        async with orders.subscribe(after=first.position - 1) as sub:
            await orders.publish(Order(4, 1))
            seen = [await anext(sub) for _ in range(4)]
        assert [m.value.id for m in seen] == [1, 2, 3, 4]
        assert (seen[0].key, seen[0].headers) == ("k", {"h": "x"})
        assert seen[0].time.tzinfo is not None


async def test_pages_and_groups(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        stream = tw.stream(real.create("streams"))
        await stream.publish_all(range(10))
        async with stream.subscribe(group="g") as sub:
            async for page in sub.pages(max=6, wait=5):
                assert page.values == list(range(6))
                await page.commit()
                break
        async with stream.subscribe(group="g") as sub:
            async for page in sub.pages(max=4, wait=5):
                assert page.values == [6, 7, 8, 9]
                break


async def test_many_messages_and_a_slow_program(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        stream = tw.stream(real.create("streams"))
        async with stream.subscribe(credits=10) as sub, asyncio.TaskGroup() as group:
            for n in range(1000):
                group.create_task(stream.publish(n))
            seen = []
            async for m in sub:
                assert len(sub._feed.items) <= 10
                seen.append(m.value)
                if len(seen) == 1000:
                    break
        assert seen == list(range(1000))


async def test_all_or_none(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        stream = tw.stream(real.create("streams"))
        ack = await stream.publish_all([1, 2, 3])
        assert ack.count == 3
        with pytest.raises(tidewire.NotFound):
            await tw.stream("nowhere-at-all").publish(1)
