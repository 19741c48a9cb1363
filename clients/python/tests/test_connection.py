"""The connection: states, tokens, keep-alive, and what fails in the background."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from conftest import until
from fake import FakeServer

import tidewire


async def test_states(fake: FakeServer) -> None:
    seen: list[str] = []
    async with tidewire.connect(fake.url, on_state=lambda s: seen.append(s.name)) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        await peer.take()
        peer.cut()
        peer = await fake.peer()
        await peer.ok(await peer.take(), position=1)
        await call
    await until(lambda: seen[-1:] == ["closed"])
    assert seen == ["connecting", "connected", "waiting", "connecting", "connected", "closed"]


async def test_a_server_that_stops_says_when(fake: FakeServer) -> None:
    waits: list[float] = []

    def told(state: tidewire.State) -> None:
        waits.append(getattr(state, "retry_in", 0))

    async with tidewire.connect(fake.url, on_state=told) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        await peer.take()
        await peer.close(1001, "the server is shutting down; retry_after_ms=123")
        peer = await fake.peer()
        await peer.ok(await peer.take(), position=1)
        await call
    assert 0.123 in waits


async def test_tokens(fake: FakeServer) -> None:
    asked: list[bool] = []

    async def token(refused: bool) -> str:
        asked.append(refused)
        return f"token-{len(asked)}"

    async with tidewire.connect(fake.url, token=token) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        assert peer.authorization == "Bearer token-1"
        await peer.take()
        await peer.close(4401, "the token has ended")
        peer = await fake.peer()
        assert peer.authorization == "Bearer token-2"
        await peer.ok(await peer.take(), position=1)
        await call
        await peer.send(type="expiring", expires_in_ms=1000)
        request = await peer.take("auth")
        assert request["token"] == "token-3"
        await peer.ok(request)
        assert asked == [False, True, False]


async def test_a_token_that_fails_is_asked_again(fake: FakeServer) -> None:
    asked = 0

    async def token(refused: bool) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OSError("the backend is away")
        return "t"

    async with tidewire.connect(fake.url, token=token) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        await peer.ok(await peer.take(), position=1)
        await call
    assert asked == 2


async def test_signed_out(fake: FakeServer) -> None:
    async def token(refused: bool) -> str:
        raise tidewire.SignedOut("the user has left")

    async with tidewire.connect(fake.url, token=token) as tw:
        with pytest.raises(tidewire.SignedOut):
            await tw.stream("s").publish(1)


async def test_a_revoked_token_ends_the_client(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url, api_key="k") as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        assert peer.authorization == "Bearer k"
        await peer.take()
        await peer.close(4403, "revoked")
        with pytest.raises(tidewire.Closed, match="revoked"):
            await call
        with pytest.raises(tidewire.Closed):
            await tw.stream("s").publish(2)


async def test_a_dead_connection_is_dropped(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.connection.QUIET", 0.05)
    monkeypatch.setattr("tidewire.connection.PONG", 0.05)
    async with tidewire.connect(fake.url) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        await peer.take("publish")
        await peer.take("ping")
        monkeypatch.setattr("tidewire.connection.QUIET", 35.0)
        peer = await fake.peer()
        await peer.ok(await peer.take("publish"), position=1)
        await call


async def test_a_pong_keeps_the_connection(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.connection.QUIET", 0.02)
    monkeypatch.setattr("tidewire.connection.PONG", 2.0)
    async with tidewire.connect(fake.url) as tw:
        call = asyncio.ensure_future(tw.stream("s").publish(1))
        peer = await fake.peer()
        request = await peer.take("publish")
        for _ in range(2):
            await peer.take("ping")
            await peer.send(type="pong")
        await peer.ok(request, position=1)
        await call
        assert fake.peers.empty()


async def test_a_failing_listener_ends_the_block(fake: FakeServer) -> None:
    def listener(state: tidewire.State) -> None:
        if state.name == "connected":
            raise RuntimeError("listener")

    with pytest.raises(RuntimeError, match="listener"):
        async with tidewire.connect(fake.url, on_state=listener) as tw:
            await tw.stream("s").publish(1, timeout=60)


async def test_no_failure_of_the_background_is_lost(fake: FakeServer) -> None:
    """The block raises one error; the loop is told the others."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(str(context["exception"]))
    )

    def listener(state: tidewire.State) -> None:
        raise RuntimeError(state.name)

    with pytest.raises(KeyError):
        async with tidewire.connect(fake.url, on_state=listener) as tw:
            try:
                await tw.stream("s").publish(1, timeout=60)
            finally:
                raise KeyError("mine")
    assert {"connecting", "closed"} <= set(told), told


async def test_a_failing_worker_ends_the_block(fake: FakeServer) -> None:
    async def refuse() -> None:
        peer = await fake.peer()
        await peer.error(await peer.take("consume"), "not_found")

    server = asyncio.ensure_future(refuse())
    with pytest.raises(tidewire.NotFound):
        async with tidewire.connect(fake.url) as tw:

            @tw.queue("q").worker()
            async def work(job: tidewire.Job[object]) -> None:
                """Never called."""

            await asyncio.Event().wait()
    await server


async def test_the_error_of_the_block_goes_first(fake: FakeServer) -> None:
    with pytest.raises(KeyError):
        async with tidewire.connect(fake.url):
            raise KeyError("mine")


async def test_cancellation_of_the_block(fake: FakeServer) -> None:
    async def block() -> None:
        async with tidewire.connect(fake.url) as tw:
            await tw.stream("s").publish(1)

    task = asyncio.ensure_future(block())
    peer = await fake.peer()
    await peer.ok(await peer.take(), position=1)
    with contextlib.suppress(asyncio.CancelledError):
        task.cancel()
        await task
    assert task.cancelled() or task.done()


async def test_a_connection_that_is_refused(fake: FakeServer) -> None:
    url = fake.url
    await fake.stop()
    seen: list[tidewire.State] = []
    async with tidewire.connect(url, on_state=seen.append) as tw:
        with pytest.raises(tidewire.Timeout, match="no connection") as late:
            await tw.stream("s").publish(1, timeout=1)
        assert isinstance(late.value.__cause__, OSError)
    assert any(isinstance(getattr(s, "error", None), OSError) for s in seen)
    await fake.start()
