"""Answers and messages that are not whole: the connection is dropped, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conftest import until
from fake import FakeServer, Peer

import tidewire
from tidewire import Event, tagged

TIME = "2026-11-26T08:05:07Z"
STORED = {"type": "A", "tags": [], "position": 1, "time": TIME}
Call = Callable[[tidewire.Client], Awaitable[Any]]


async def decide(tw: tidewire.Client) -> Any:
    return await tw.events().decide(tagged("t"), lambda n, e: n + 1, 0, lambda n: [Event("A")])


async def query(tw: tidewire.Client) -> Any:
    return [event.position async for event in tw.events().query(tagged("t"))]


async def subscribe(tw: tidewire.Client) -> Any:
    async with tw.stream("s").subscribe() as sub:
        return sub.position


async def join(tw: tidewire.Client) -> Any:
    member = tw.room("r").join(history=1)
    await member.open()
    return member.position


async def follow(tw: tidewire.Client) -> Any:
    async with tw.events().subscribe() as sub:
        return sub.position


#: the call, its bad answers, and a good one for the same request
CASES: dict[str, tuple[Call, list[dict[str, Any]], dict[str, Any]]] = {
    "publish": (
        lambda tw: tw.stream("s").publish(1),
        [{}, {"position": None}, {"position": "x"}, {"position": True}],
        {"position": 1},
    ),
    "publish_all": (lambda tw: tw.stream("s").publish_all([1, 2]), [{}], {"position": 1}),
    "enqueue": (lambda tw: tw.queue("q").enqueue(1), [{}, {"position": []}], {"position": 1}),
    "unique": (
        lambda tw: tw.queue("q").enqueue(1, unique_key="k", unique_for=1),
        [{}],
        {"position": 1},
    ),
    "append": (
        lambda tw: tw.events().append(Event("A")),
        [{}, {"positions": []}, {"positions": ["1"]}, {"positions": 1}],
        {"positions": [1]},
    ),
    "commit": (lambda tw: tw.stream("s").commit("g", 1), [{}], {"position": 1}),
    "subscribe": (subscribe, [{}, {"position": "1"}], {"position": 1}),
    "follow": (follow, [{}], {"position": 1}),
    "join": (join, [{"position": "1"}], {"position": 1}),
    "project": (
        lambda tw: tw.events().project(tagged("t")),
        [{}, {"counts": [1]}, {"counts": [], "condition": {}}, {"condition": {}}],
        {"counts": [1], "condition": {"after": 1}},
    ),
    "query": (
        query,
        [
            {},
            {"events": []},
            {"next": 1},
            {"events": [{}], "next": 1},
            {"events": [{**STORED, "tags": None}], "next": 1},
        ],
        {"events": [], "next": 1},
    ),
    "decide": (decide, [{}, {"events": None, "next": 1}], {"events": [], "next": 1}),
}


@pytest.mark.parametrize("name", CASES)
async def test_an_ok_without_its_fields_is_no_answer(fake: FakeServer, name: str) -> None:
    call, bad, good = CASES[name]
    async with tidewire.connect(fake.url) as tw:
        calling = asyncio.ensure_future(call(tw))
        for answer in bad:
            peer = await fake.peer()
            await peer.ok(await peer.take(), **answer)
        peer = await fake.peer()
        await peer.ok(await peer.take(), **good)
        if name == "decide":
            await peer.ok(await peer.take("append"), positions=[1])
        await calling


async def test_a_chat_that_was_stored_has_a_position(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        member = tw.room("r").join()
        joining = asyncio.ensure_future(member.open())
        peer = await fake.peer()
        await peer.ok(await peer.take("join"), position=0)
        await joining
        call = asyncio.ensure_future(member.chat("hi"))
        await peer.ok(await peer.take("chat"))
        peer = await fake.peer()
        await peer.ok(await peer.take("join"), position=0)
        await peer.ok(await peer.take("chat"), position=1)
        assert await call == 1


@pytest.mark.parametrize("missing", ["position", "time", "stream"])
async def test_a_message_without_its_fields(fake: FakeServer, missing: str) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.stream("s").subscribe(after=0).__aenter__())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        await peer.ok(request, position=0)
        sub = await opening
        whole = {"stream": "s", "position": 1, "time": TIME, "payload": "1"}
        broken = {name: value for name, value in whole.items() if name != missing}
        await peer.send(type="message", subscription=request["subscription"], **broken)
        peer = await fake.peer()
        request = await peer.take("subscribe")
        await peer.ok(request, position=0)
        await peer.send(type="message", subscription=request["subscription"], **whole)
        assert (await anext(sub)).position == 1


async def test_a_delivery_without_its_fields(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        consumer = tw.queue("q").consume()
        opening = asyncio.ensure_future(consumer.open())
        peer = await fake.peer()
        await peer.ok(await peer.take("consume"))
        await opening
        await peer.send(type="delivery", queue="q", delivery="1", payload="1")
        peer = await fake.peer()
        await peer.ok(await peer.take("consume"))
        await peer.delivery("q", "2", 7)
        assert (await anext(consumer)).value == 7


async def subscribed(tw: tidewire.Client, fake: FakeServer) -> tuple[Any, Peer, dict[str, Any]]:
    sub = tw.stream("s").subscribe(after=0, credits=4)
    opening = asyncio.ensure_future(sub.open())
    peer = await fake.peer()
    request = await peer.take("subscribe")
    await peer.ok(request, position=0)
    await opening
    return sub, peer, request


async def test_more_messages_than_credits(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        sub, peer, request = await subscribed(tw, fake)
        for position in range(1, 7):
            await peer.message(request, position, position)
            assert (await anext(sub)).position == position
        link = tw._connection._link
        for position in range(7, 12):
            await peer.message(request, position, position)
        peer = await fake.peer()
        assert link is not None and "credits" in str(link.failure)
        request = await peer.take("subscribe")
        assert (request["after"], request["credits"]) == (6, 4)
        await peer.ok(request, position=6)
        for position in range(7, 11):
            await peer.message(request, position, position)
        assert [(await anext(sub)).position for _ in range(4)] == [7, 8, 9, 10]


async def test_more_events_than_credits(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        sub = tw.events().subscribe(credits=2)
        opening = asyncio.ensure_future(sub.open())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        await peer.ok(request, position=0)
        await opening
        for position in range(1, 4):
            event = {**STORED, "position": position}
            await peer.send(type="event", subscription=request["subscription"], event=event)
        peer = await fake.peer()
        assert (await peer.take("subscribe"))["after"] == 0


async def test_marks_of_a_filter_are_one(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        sub, peer, request = await subscribed(tw, fake)
        name = {"stream": "s", "subscription": request["subscription"]}
        await peer.message(request, 1, 1)
        for position in range(2, 500):
            await peer.send(type="position", position=position, **name)
        await peer.message(request, 500, 2)
        await until(lambda: sub._feed.items and sub._feed.items[-1]["position"] == 500)
        assert len(sub._feed.items) == 3
        assert [(await anext(sub)).position for _ in range(2)] == [1, 500]


async def test_more_deliveries_than_credits(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        consumer = tw.queue("q").consume(credits=2)
        opening = asyncio.ensure_future(consumer.open())
        peer = await fake.peer()
        await peer.ok(await peer.take("consume"))
        await opening
        for number in range(9):
            await peer.delivery("q", str(number))
        peer = await fake.peer()
        await peer.ok(await peer.take("consume"))
        assert not consumer._feed.items
        for number in range(100, 120):  # settled ones free their credits
            await peer.delivery("q", str(number))
            job = await anext(consumer)
            acking = asyncio.ensure_future(job.ack())
            await peer.ok(await peer.take("ack"), count=1)
            await acking
        assert fake.peers.empty()


async def test_deliveries_that_nobody_settles(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.consumer.LEASE", 0.0)
    async with tidewire.connect(fake.url) as tw:
        consumer = tw.queue("q").consume(credits=2)
        opening = asyncio.ensure_future(consumer.open())
        peer = await fake.peer()
        await peer.ok(await peer.take("consume"))
        await opening
        for number in range(40):  # the server delivers again what was left to its lease's end
            await peer.delivery("q", str(number))
            await anext(consumer)
        assert fake.peers.empty()
        assert len(consumer._open) <= 8


async def test_a_slow_program_gets_one_change_of_presence(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.room.WAITING", 2)
    async with tidewire.connect(fake.url) as tw:
        member = tw.room("r").join(presence=True)
        joining = asyncio.ensure_future(member.open())
        peer = await fake.peer()
        await peer.ok(await peer.take("join"))
        await joining
        await peer.send(type="presence", room="r", members=["a"])
        for number in range(20):
            await peer.send(type="presence", room="r", joined=[f"b{number}"], left=[])
        await peer.send(type="presence", room="r", joined=[], left=["b0", "b1"])
        await until(lambda: len(member.members) == 19)
        assert len(member._feed.items) == 2
        first, second = await anext(member), await anext(member)
        assert isinstance(first, tidewire.Presence) and isinstance(second, tidewire.Presence)
        assert first.members == {"a"}
        assert second.members == member.members
        assert second.joined == member.members - {"a"}
        assert not second.left
