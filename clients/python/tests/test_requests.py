"""Requests: repeated until they are answered, in order, in batches, and bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import until
from fake import FakeServer

import tidewire


async def test_nothing_happens_before_the_first_request(fake: FakeServer) -> None:
    tw = tidewire.connect(fake.url)
    await asyncio.sleep(0.02)
    assert fake.peers.empty()
    assert tw.state is None
    await tw.close()


def test_connect_needs_no_loop() -> None:
    tidewire.connect("ws://localhost:1/ws").stream("s")


async def test_publishes_of_one_tick_share_a_request(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw, asyncio.TaskGroup() as group:
        calls = [group.create_task(tw.stream("s").publish(n)) for n in range(3)]
        peer = await fake.peer()
        request = await peer.take("publish")
        assert [m["payload"] for m in request["messages"]] == ["0", "1", "2"]
        assert request["sequence"] == 0
        assert len(request["client"]) == 32
        await peer.ok(request, position=7, count=3)
        assert [(await call).position for call in calls] == [7, 8, 9]


async def test_a_batch_has_one_key(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw, asyncio.TaskGroup() as group:
        for key in ("a", "a", None, "a"):
            group.create_task(tw.stream("s").publish(1, key=key))
        peer = await fake.peer()
        for keys in (["a", "a"], [None], ["a"]):
            request = await peer.take("publish")
            found = request.get("messages", [request])
            assert [m.get("key") for m in found] == keys
            await peer.ok(request, position=1)


async def test_without_batches(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url, batch=False) as tw, asyncio.TaskGroup() as group:
        for n in range(2):
            group.create_task(tw.stream("s").publish(n))
        peer = await fake.peer()
        for n in range(2):
            request = await peer.take("publish")
            assert (request["payload"], request["sequence"]) == (str(n), n)
            await peer.ok(request, position=n)


async def test_a_refused_batch_is_sent_one_by_one(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        calls = [asyncio.ensure_future(tw.stream("s").publish(n)) for n in range(3)]
        peer = await fake.peer()
        await peer.error(await peer.take("publish"), "cross_partition")
        for n in range(3):
            request = await peer.take("publish")
            assert (request["payload"], request["sequence"]) == (str(n), n + 1)
            if n == 1:
                await peer.error(request, "invalid")
            else:
                await peer.ok(request, position=n)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(r, "position", None) for r in results] == [0, None, 2]
        assert isinstance(results[1], tidewire.Error)
        assert results[1].code == "invalid"


async def test_a_lost_request_is_sent_again_as_it_was(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw, asyncio.TaskGroup() as group:
        calls = [group.create_task(tw.stream("s").publish(n)) for n in range(2)]
        peer = await fake.peer()
        first = await peer.take("publish")
        calls.append(group.create_task(tw.stream("s").publish(2)))
        second = await peer.take("publish")
        peer.cut()
        peer = await fake.peer()
        assert [await peer.take(), await peer.take()] == [first, second]
        await peer.ok(second, position=3)
        await peer.ok(first, position=1, duplicate=True)
        assert [(await call).position for call in calls] == [1, 2, 3]
        assert (await calls[0]).duplicate


@pytest.mark.parametrize("code", ["unavailable", "overloaded", "rate_limited", "outcome_unknown"])
async def test_a_refusal_that_passes_is_waited_for(fake: FakeServer, code: str) -> None:
    async with tidewire.connect(fake.url) as tw, asyncio.TaskGroup() as group:
        call = group.create_task(tw.queue("q").enqueue(1))
        peer = await fake.peer()
        request = await peer.take("enqueue")
        retryable = code != "outcome_unknown"
        await peer.error(request, code, retryable=retryable, retry_after_ms=1)
        later = group.create_task(tw.queue("q").enqueue(2))
        assert await peer.take("enqueue") == request
        await peer.ok(request, position=1)
        await peer.ok(await peer.take("enqueue"), position=2)
        assert (await call).position == 1
        assert (await later).position == 2


async def test_time_outs_before_sending(fake: FakeServer) -> None:
    fake.greets = False
    tw = tidewire.connect(fake.url)
    with pytest.raises(tidewire.Timeout):
        await tw.stream("s").publish(1, timeout=0.05)
    await tw.close()


async def test_time_outs_after_sending(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        await fake.connected(tw)
        with pytest.raises(tidewire.OutcomeUnknown):
            await tw.stream("s").publish(1, timeout=0.01)
        with pytest.raises(TimeoutError):
            await tw.events().project(tidewire.tagged("t"), timeout=0.01)


async def test_an_answer_that_is_too_old(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        await peer.error(await peer.take("publish"), "sequence_too_old")
        with pytest.raises(tidewire.OutcomeUnknown):
            await call


async def test_a_cancelled_call_is_not_sent(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        calls = [asyncio.ensure_future(tw.stream("s").publish(n)) for n in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        peer = await fake.peer()
        request = await peer.take("publish")
        assert [m["payload"] for m in request["messages"]] == ["0", "2"]
        await peer.ok(request, position=5)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(r, "position", None) for r in results] == [5, None, 6]


async def test_a_call_waits_for_room(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url, max_pending=2, batch=False) as tw:
        calls = [asyncio.ensure_future(tw.stream("s").publish(n)) for n in range(4)]
        peer = await fake.peer()
        first, second = await peer.take(), await peer.take()
        with pytest.raises(tidewire.Timeout):
            await tw.stream("s").publish(9, timeout=0.05)
        assert peer.messages.empty()
        await peer.ok(first, position=0)
        third = await peer.take()
        assert third["payload"] == "2"
        await peer.ok(second, position=1)
        await peer.ok(third, position=2)
        await peer.ok(await peer.take(), position=3)
        assert [(await call).position for call in calls] == [0, 1, 2, 3]


async def test_bytes_are_bounded_too(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url, max_pending_bytes=100) as tw:
        stream = tw.stream("s", type=tidewire.text)
        calls = [asyncio.ensure_future(stream.publish("x" * 90)) for _ in range(2)]
        peer = await fake.peer()
        request = await peer.take("publish")
        assert "messages" not in request
        await peer.ok(request, position=1)
        await peer.ok(await peer.take("publish"), position=2)
        await asyncio.gather(*calls)


async def test_too_big(fake: FakeServer) -> None:
    fake.limits["message_bytes"] = 1000
    async with tidewire.connect(fake.url) as tw:
        stream = tw.stream("s", type=tidewire.text)
        good = asyncio.ensure_future(stream.publish("good"))
        bad = asyncio.ensure_future(stream.publish("x" * 1001))
        peer = await fake.peer()
        request = await peer.take("publish")
        assert request["payload"] == "good"
        await peer.ok(request, position=1)
        await good
        with pytest.raises(tidewire.TooBig):
            await bad
        with pytest.raises(tidewire.TooBig):
            await stream.publish("x" * 1001)


async def test_close_waits_for_answers_and_ends_the_rest(fake: FakeServer) -> None:
    tw = tidewire.connect(fake.url)
    call = asyncio.ensure_future(tw.stream("s").publish(1))
    peer = await fake.peer()
    request = await peer.take("publish")
    closing = asyncio.ensure_future(tw.close())
    await asyncio.sleep(0)
    with pytest.raises(tidewire.Closed):
        await tw.stream("s").publish(2)
    await peer.ok(request, position=4)
    assert (await call).position == 4
    await closing
    with pytest.raises(tidewire.Closed):
        await tw.stream("s").publish(2)


async def test_errors_have_what_they_say(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        append = asyncio.ensure_future(tw.events().append(tidewire.Event("X")))
        peer = await fake.peer()
        request = await peer.take("append")
        await peer.error(request, "conflict", position=5, event_type="Y")
        with pytest.raises(tidewire.Conflict) as conflict:
            await append
        assert (conflict.value.position, conflict.value.event_type) == (5, "Y")
        assert conflict.value.request_id == request["id"]
        publish = asyncio.ensure_future(tw.stream("s").publish(1))
        told: dict[str, Any] = {"verb": "publish", "kind": "stream", "name": "s"}
        await peer.error(await peer.take("publish"), "forbidden", **told)
        with pytest.raises(tidewire.Forbidden) as forbidden:
            await publish
        error = forbidden.value
        assert (error.verb, error.kind, error.object) == ("publish", "stream", "s")


async def test_what_is_refused_here(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        with pytest.raises(ValueError, match="JSON"):
            await tw.stream("s").publish(float("nan"))
        with pytest.raises(ValueError, match="no message"):
            await tw.stream("s").publish_all([])
        await until(lambda: tw.state is None)
