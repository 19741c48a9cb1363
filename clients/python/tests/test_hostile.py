"""Servers and programs that do what they should not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import until
from fake import FakeServer

import tidewire
from tidewire.state import Waiting


async def test_a_token_callback_that_is_cancelled_has_failed(fake: FakeServer) -> None:
    asked = 0

    async def token(refused: bool) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise asyncio.CancelledError
        return "t"

    async with tidewire.connect(fake.url, token=token, timeout=5) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        await peer.ok(await peer.take(), position=1)
        assert (await call).position == 1


@pytest.mark.parametrize("nothing", [None, "", b"token"])
async def test_a_token_callback_that_returns_none_has_failed(
    fake: FakeServer, nothing: Any
) -> None:
    seen: list[tidewire.State] = []
    tokens = [nothing, "good", nothing, "better"]

    async def token(refused: bool) -> str:
        token: str = tokens.pop(0)
        return token

    async with tidewire.connect(fake.url, token=token, on_state=seen.append) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        assert peer.authorization == "Bearer good"
        await peer.ok(await peer.take(), position=1)
        await call
        await peer.send(type="expiring", expires_in_ms=1000)
        assert (await peer.take("auth"))["token"] == "better"
    failures = [str(state.error) for state in seen if isinstance(state, Waiting)]
    assert failures == [f"the token callback has returned no token, but {nothing!r}"]


async def test_the_call_is_told_that_there_is_no_token(fake: FakeServer) -> None:
    async def token(refused: bool) -> Any:
        """Forgets to return it."""

    async with tidewire.connect(fake.url, token=token) as tw:
        with pytest.raises(tidewire.Timeout, match="returned no token"):
            await tw.stream("s").publish(1, timeout=0.1)


async def test_a_token_that_never_comes_holds_no_later_connection(fake: FakeServer) -> None:
    asked = 0

    async def token(refused: bool) -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            await asyncio.Event().wait()
        return f"token-{asked}"

    async with tidewire.connect(fake.url, token=token) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        await peer.ok(await peer.take(), position=1)
        await call
        await peer.send(type="expiring", expires_in_ms=1000)
        await until(lambda: asked == 2)
        peer.cut()
        peer = await fake.peer()
        await peer.send(type="expiring", expires_in_ms=1000)
        async with asyncio.timeout(5):
            request = await peer.take("auth")
        assert request["token"] == "token-4"


@pytest.mark.parametrize("told", ["9" * 90, "31536000000", "inf"])
async def test_a_pause_is_a_day_at_most(fake: FakeServer, told: str) -> None:
    seen: list[tidewire.State] = []
    async with tidewire.connect(fake.url, on_state=seen.append, timeout=0.5) as tw:
        peer = await fake.connected(tw)
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        await peer.take()
        await peer.close(1001, f"retry_after_ms={told}")
        await until(lambda: len(seen) >= 3)
        with pytest.raises(tidewire.OutcomeUnknown):
            await call
        assert isinstance(seen[-1], Waiting)
        assert seen[-1].retry_in == 24 * 3600


@pytest.mark.parametrize(("told", "least", "most"), [("-5", 0, 0), ("soon", 0, 2), ("nan", 0, 2)])
async def test_a_pause_of_a_reason_that_is_none(
    fake: FakeServer, told: str, least: float, most: float
) -> None:
    waits: list[float] = []

    def listen(state: tidewire.State) -> None:
        if isinstance(state, Waiting):
            waits.append(state.retry_in)

    tw = tidewire.connect(fake.url, on_state=listen)
    call = asyncio.ensure_future(tw.stream("s").publish(1))
    peer = await fake.peer()
    await peer.take()
    await peer.close(1001, f"retry_after_ms={told}")
    await until(lambda: waits)
    assert least <= waits[0] <= most
    call.cancel()
    await tw.close()


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (-1, 0.0),
        (1500, 1.5),
        (10**400, 86400.0),
        (float("inf"), 86400.0),
        (float("nan"), None),
        (True, None),
        ("7", None),
        (None, None),
    ],
)
def test_pauses_of_the_server(told: object, seconds: float | None) -> None:
    assert tidewire.Error("", details={"retry_after_ms": told}).retry_after == seconds


@pytest.mark.parametrize("told", [-1000, "soon", [], 10**400, float("nan")])
async def test_a_pause_that_is_none(fake: FakeServer, told: object) -> None:
    async with tidewire.connect(fake.url, timeout=5) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        await peer.error(await peer.take(), "busy", retryable=True, retry_after_ms=told)
        if told == 10**400:
            await asyncio.sleep(0.1)
            assert tw.state is not None and tw.state.name == "connected"
            call.cancel()
            return
        await peer.ok(await peer.take(), position=1)
        assert (await call).position == 1


async def test_calls_that_have_ended_are_not_kept_while_there_is_no_server() -> None:
    async with tidewire.connect("ws://localhost:1/ws", timeout=0.001, batch=False) as tw:
        stream = tw.stream("s")
        for _ in range(300):
            with pytest.raises(tidewire.Timeout):
                await stream.publish("x" * 1000)
        kept = tw._connection.requests._queue
        assert len(kept) < 100


async def test_a_listener_of_outcomes_that_fails_harms_no_other_job(fake: FakeServer) -> None:
    done: list[str] = []

    def told(job: tidewire.Job[int], outcome: str) -> None:
        done.append(f"{job.value} {outcome}")
        if job.value == 1:
            raise ValueError("the listener is broken")

    async def handler(job: tidewire.Job[int]) -> None:
        await asyncio.sleep(0)

    with pytest.raises(ValueError, match="broken"):
        async with tidewire.connect(fake.url) as tw:
            tw.queue("q").worker(concurrency=2, on_done=told)(handler)
            peer = await fake.peer()
            await peer.ok(await peer.take("consume"))
            await peer.delivery("q", "1", 1)
            await peer.delivery("q", "2", 2)
            acked: set[str] = set()
            while len(acked) < 2:
                request = await peer.take("ack")
                acked.update(request["deliveries"])
                await peer.ok(request)
            async with asyncio.timeout(5):
                await until(lambda: len(done) == 2)
    assert sorted(done) == ["1 acked", "2 acked"]


async def test_a_refused_call_that_has_ended_holds_no_other(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url, timeout=5) as tw:
        peer = await fake.connected(tw)
        first = asyncio.ensure_future(tw.stream("s").publish(1, timeout=0.2))
        await peer.error(await peer.take(), "busy", retryable=True, retry_after_ms=3600_000)
        await asyncio.sleep(0.05)
        second = asyncio.ensure_future(tw.stream("s").publish(2))
        await peer.ok(await peer.take(), position=1)
        assert (await second).position == 1
        with pytest.raises(tidewire.Error, match="busy"):
            await first


def test_another_loop_is_refused() -> None:
    tw = tidewire.connect("ws://localhost:1/ws", timeout=0.05)

    async def publish() -> None:
        await tw.stream("s").publish(1)

    with pytest.raises(tidewire.Timeout):
        asyncio.run(publish())
    with pytest.raises(RuntimeError, match="event loop"):
        asyncio.run(asyncio.wait_for(publish(), 2))
