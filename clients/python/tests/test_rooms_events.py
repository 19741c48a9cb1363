"""Rooms and events."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from conftest import Real, until
from fake import FakeServer

import tidewire
from tidewire import Event, tagged, types


async def test_a_room_that_is_not_stored(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.room("r").join(user="ann", presence=True).__aenter__())
        peer = await fake.peer()
        request = await peer.take("join")
        assert (request["user"], request["presence"]) == ("ann", True)
        await peer.ok(request)
        room = await opening
        await peer.send(type="presence", room="r", count=2, members=["ann", "bob"])
        await peer.send(type="chat", room="r", user="bob", text="hello", colour="red")
        presence = await anext(room)
        assert isinstance(presence, tidewire.Presence)
        assert presence.joined == room.members == {"ann", "bob"}
        chat = await anext(room)
        assert isinstance(chat, tidewire.Chat)
        assert (chat.user, chat.text, chat.position) == ("bob", "hello", None)
        assert chat.fields["colour"] == "red"
        talking = asyncio.ensure_future(room.chat("hi"))
        request = await peer.take("chat")
        assert "client" not in request
        peer.cut()
        with pytest.raises(tidewire.OutcomeUnknown):
            await talking
        peer = await fake.peer()
        await peer.ok(await peer.take("join"))
        await peer.send(type="presence", room="r", count=2, members=["ann", "carol"])
        gap = await anext(room)
        assert isinstance(gap, tidewire.Gap)
        assert gap.missed is None
        change = await anext(room)
        assert isinstance(change, tidewire.Presence)
        assert change.joined == {"carol"}
        assert change.left == {"bob"}
        closing = asyncio.ensure_future(room.leave())
        await peer.ok(await peer.take("leave"))
        await closing


async def test_a_stored_room(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.room("r").join(history=5).__aenter__())
        peer = await fake.peer()
        request = await peer.take("join")
        assert request["history"] == 5
        stored = {"room": "r", "user": "bob", "time": "2026-11-26T08:05:07Z"}
        await peer.send(type="chat", text="old", position=3, **stored)
        await peer.ok(request, position=4, history=1)
        room = await opening
        old = await anext(room)
        assert isinstance(old, tidewire.Chat)
        assert (old.position, room.position) == (3, 3)
        talking = asyncio.ensure_future(room.chat("hi"))
        chat = await peer.take("chat")
        assert chat["sequence"] == 0
        peer.cut()
        peer = await fake.peer()
        request = await peer.take("join")
        assert (request["after"], "history" in request) == (3, False)
        await peer.ok(request, position=5)
        assert await peer.take("chat") == chat  # not before: the server would refuse it
        await peer.ok(chat, position=5)
        assert await talking == 5
        await peer.send(type="history_lost", room="r", last=2, up_to=3)
        lost = await anext(room)
        assert isinstance(lost, tidewire.HistoryLost)
        assert (lost.last, lost.up_to) == (2, 3)
        closing = asyncio.ensure_future(room.leave())
        await peer.ok(await peer.take("leave"))
        await closing


async def test_a_slow_member_is_told_what_it_missed(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.room.WAITING", 2)
    async with tidewire.connect(fake.url) as tw:
        opening = asyncio.ensure_future(tw.room("r").join().__aenter__())
        peer = await fake.peer()
        await peer.ok(await peer.take("join"))
        room = await opening
        for n in range(5):
            await peer.send(type="chat", room="r", text=str(n))
        await until(lambda: room._missed == 3)
        seen = [await anext(room) for _ in range(3)]
        assert isinstance(seen[2], tidewire.Gap)
        assert seen[2].missed == 3
        closing = asyncio.ensure_future(room.leave())
        await peer.ok(await peer.take("leave"))
        await closing


# Against a real server.


def tag() -> str:
    return f"t:{uuid.uuid4().hex}"


async def test_talking(real: Real) -> None:
    name = uuid.uuid4().hex
    async with (
        tidewire.connect(real.url) as ann,
        tidewire.connect(real.url) as bob,
        ann.room(name).join(user="ann") as at_ann,
        bob.room(name).join(user="bob") as at_bob,
    ):
        await at_ann.chat("hello")
        chat = await anext(at_bob)
        assert isinstance(chat, tidewire.Chat)
        assert (chat.user, chat.text) == ("ann", "hello")


async def test_append_query_and_project(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        store, mark = tw.events(), tag()
        appended = await store.append(
            Event("A", tags=[mark], data={"n": 1}), Event("B", tags=[mark], data=b"\xff")
        )
        assert len(appended.positions) == 2
        found = [e async for e in store.query(tagged(mark), page=1)]
        assert [(e.type, e.data) for e in found] == [("A", {"n": 1}), ("B", b"\xff")]
        backwards = [e.type async for e in store.query(tagged(mark), backwards=True, page=1)]
        assert backwards == ["B", "A"]
        projection = await store.project(tagged(mark), tagged(mark).types("A"))
        assert projection.counts == [2, 1]
        await store.append(Event("C", tags=[mark]), condition=projection.condition)
        with pytest.raises(tidewire.Conflict) as conflict:
            await store.append(Event("D", tags=[mark]), condition=projection.condition)
        assert conflict.value.event_type == "C"
        async with store.subscribe(tagged(mark)) as sub:
            assert [(await anext(sub)).type for _ in range(3)] == ["A", "B", "C"]


async def test_decisions_of_many(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        store, mark = tw.events(), tag()
        full = 0

        async def enrol() -> None:
            nonlocal full
            turns = store.decisions(taken=(tagged(mark), 0, lambda n, _: n + 1), attempts=50)
            async for state in turns:
                if state.taken >= 3:
                    full += 1
                    break
                await state.append(Event("Enrolled", tags=[mark]))

        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(enrol())
        assert full == 3
        assert (await store.project(tagged(mark))).counts == [3]


async def test_decide(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        store, mark = tw.events(), tag()

        async def enrol() -> object:
            return await store.decide(
                tagged(mark),
                lambda n, _: n + 1,
                0,
                lambda n: [Event("Enrolled", tags=[mark])] if n < 3 else [],
                attempts=50,
            )

        results = await asyncio.gather(*(enrol() for _ in range(6)))
        assert results.count(None) == 3


def test_queries() -> None:
    query = tagged("a", "b").types("X", "Y") | types("Z")
    assert query.to_wire() == {
        "items": [{"types": ["X", "Y"], "tags": ["a", "b"]}, {"types": ["Z"]}]
    }
    assert query.matches(Event("X", tags=["a", "b", "c"]))
    assert query.matches(Event("Z"))
    assert not query.matches(Event("X", tags=["a"]))
    assert not query.matches(Event("W", tags=["a", "b"]))
    assert tidewire.everything().to_wire() == {}
    assert (query | tidewire.everything()).matches(Event("W"))
    assert types("X").tagged("a").matches(Event("X", tags=["a"]))


def test_a_text_as_tags_is_refused() -> None:
    with pytest.raises(TypeError, match="want a list"):
        tidewire.Event("Opened", tags="course:1")
