"""A server that does not read: what the client holds for it is bounded."""

from __future__ import annotations

import asyncio

import pytest
from conftest import until
from fake import FakeServer, Peer

import tidewire
from tidewire.link import HIGH_WATER, Link
from tidewire.requests import OWN

CHUNK = 128 << 10


def link_of(tw: tidewire.Client) -> Link:
    link = tw._connection._link
    assert link is not None
    return link


async def unread(
    fake: FakeServer, tw: tidewire.Client
) -> tuple[Peer, list[asyncio.Future[tidewire.Ack]]]:
    """A connection whose write buffer is full, and the calls that have filled it."""
    stream = tw.stream("s", type=tidewire.text)
    first = asyncio.ensure_future(stream.publish("first"))
    peer = await fake.peer()
    peer.stop_reading()
    calls: list[asyncio.Future[tidewire.Ack]] = [first]
    while tw._connection._link is None or link_of(tw).writable:
        calls.append(asyncio.ensure_future(stream.publish("x" * CHUNK)))
        await asyncio.sleep(0)
    return peer, calls


async def test_calls_wait_in_the_client(fake: FakeServer) -> None:
    tw = tidewire.connect(fake.url, max_pending_bytes=1 << 30, batch=False)
    peer, calls = await unread(fake, tw)
    stream = tw.stream("s", type=tidewire.text)
    calls += [asyncio.ensure_future(stream.publish("x" * CHUNK)) for _ in range(200)]
    await asyncio.sleep(0.1)
    transport = link_of(tw)._transport
    assert transport is not None
    assert transport.get_write_buffer_size() < 2 * HIGH_WATER + CHUNK
    for call in calls:
        call.cancel()
    peer.cut()
    await tw.close()


async def test_they_go_out_in_order_when_it_reads_again(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url, max_pending_bytes=1 << 30, batch=False) as tw:
        peer, calls = await unread(fake, tw)
        calls += [asyncio.ensure_future(tw.stream("s").publish(n)) for n in range(200)]
        peer.socket.transport.resume_reading()
        for sequence in range(len(calls)):
            request = await peer.take("publish")
            assert request["sequence"] == sequence
            await peer.ok(request, position=sequence + 1)
        await asyncio.gather(*calls)


async def test_credits_are_bounded(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url, max_pending_bytes=1 << 30, batch=False) as tw:
        opening = asyncio.ensure_future(tw.stream("s").subscribe(after=0, credits=2).__aenter__())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        await peer.ok(request, position=0)
        sub = await opening
        peer.stop_reading()
        link = link_of(tw)
        link.pause_writing()
        for position in range(1, OWN + 2):
            await peer.message(request, position, position)
            assert (await anext(sub)).position == position
        await asyncio.wait_for(link.closed, 5)
        assert "has not answered" in str(link.failure)
        peer.cut()
        peer = await fake.peer()
        request = await peer.take("subscribe")
        assert request["after"] == sub.position


async def test_answers_to_pings_are_bounded(fake: FakeServer) -> None:
    tw = tidewire.connect(fake.url, max_pending_bytes=1 << 30, batch=False)
    peer, calls = await unread(fake, tw)
    link = link_of(tw)
    with pytest.raises(Exception):  # noqa: B017 - whichever way the connection ends
        for number in range(100_000):
            await peer.socket.ping(f"{number:0120}".encode())
    await until(link.closed.done)
    assert "pings" in str(link.failure)
    for call in calls:
        call.cancel()
    await tw.close()
