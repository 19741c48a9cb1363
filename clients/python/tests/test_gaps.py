"""Messages that the program does not get, and where it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import until
from fake import FakeServer, Peer

import tidewire

LARGE = {"code": "message_too_large", "position": 2, "size": 5_000_000}


class Member:
    """A subscription with one message, after which its partition is parked."""

    def __init__(self, sub: tidewire.Subscription[Any], peer: Peer, name: dict[str, str]) -> None:
        self.sub = sub
        self.peer = peer
        self.name = name

    async def message(self, position: int) -> None:
        fields = {"time": "2026-11-26T08:05:07Z", "payload": "1", **self.name}
        await self.peer.send(type="message", partition=3, position=position, **fields)


async def member(fake: FakeServer, tw: tidewire.Client, **options: Any) -> Member:
    sub = tw.stream("s").subscribe(group="g", share=True, **options)
    opening = asyncio.ensure_future(sub.open())
    peer = await fake.peer()
    request = await peer.take("subscribe")
    await peer.ok(request)
    await opening
    m = Member(sub, peer, {"stream": "s", "subscription": request["subscription"]})
    await peer.send(type="assigned", partitions=[3], positions=[0], **m.name)
    await m.message(1)
    await peer.send(type="parked", partition=3, oldest=3, **LARGE, **m.name)
    await until(lambda: len(sub._feed.items) == 2)
    return m


@pytest.mark.parametrize("options", [{}, {"on_gap": print}])
async def test_a_parked_partition_raises_until_it_is_committed(
    fake: FakeServer, options: dict[str, Any]
) -> None:
    async with tidewire.connect(fake.url) as tw:
        m = await member(fake, tw, **options)
        assert (await anext(m.sub)).position == 1
        with pytest.raises(tidewire.MessageTooLarge, match="does not read") as large:
            await anext(m.sub)
        error = large.value
        assert (error.partition, error.position, error.size) == (3, 2, 5_000_000)
        committed = asyncio.ensure_future(m.sub.commit(2, partition=3))
        await m.peer.ok(await m.peer.take("commit"), position=2)
        await committed
        await m.message(3)
        assert (await anext(m.sub)).position == 3


async def test_a_gap_is_crossed_after_what_the_program_has_taken(fake: FakeServer) -> None:
    gaps: list[tidewire.Skipped] = []
    async with tidewire.connect(fake.url) as tw:
        m = await member(fake, tw, gaps="skip", on_gap=gaps.append)
        page = await anext(m.sub.pages())
        assert [each.position for each in page.messages] == [1]
        assert not gaps
        waiting = asyncio.ensure_future(anext(m.sub.pages()))
        await m.peer.error(await m.peer.take("commit"), "forbidden")
        with pytest.raises(tidewire.Forbidden):  # it must not stand still without an error
            await waiting
        waiting = asyncio.ensure_future(anext(m.sub.pages()))
        commit = await m.peer.take("commit")
        assert (commit["position"], commit["partition"]) == (2, 3)
        await m.peer.ok(commit, position=2)
        await m.message(3)
        assert [each.position for each in (await waiting).messages] == [3]
        assert gaps == [tidewire.Skipped(3, 3, "message_too_large", 2, 5_000_000)]


async def test_an_old_position_of_a_partition(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        m = await member(fake, tw)
        await m.peer.send(type="revoked", partitions=[3], **m.name)
        await m.peer.send(type="parked", partition=4, code="too_old", oldest=9, **m.name)
        await until(lambda: m.sub._feed.items[0]["partition"] == 4)
        with pytest.raises(tidewire.TooOld, match="before position 9 were dropped") as old:
            await anext(m.sub)
        assert (old.value.partition, old.value.oldest) == (4, 9)
