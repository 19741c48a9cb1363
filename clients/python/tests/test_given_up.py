"""What was begun and is not wanted any more, and pages that are not finished."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake import FakeServer

import tidewire


@pytest.mark.parametrize("late", [False, True], ids=["cancelled", "late"])
@pytest.mark.parametrize("kind", ["subscribe", "consume", "join", "events"])
async def test_the_server_is_told(fake: FakeServer, kind: str, late: bool) -> None:
    async with tidewire.connect(fake.url, timeout=0.3 if late else 30) as tw:
        made: dict[str, Any] = {
            "subscribe": tw.stream("s").subscribe(),
            "consume": tw.queue("q").consume(),
            "join": tw.room("r").join(),
            "events": tw.events().subscribe(),
        }
        peer = await fake.connected(tw)
        opening = asyncio.create_task(made[kind].open())
        request = await peer.take("subscribe" if kind == "events" else kind)
        if not late:
            opening.cancel()
        await asyncio.wait([opening])
        told = await peer.take({"consume": "cancel", "join": "leave"}.get(kind, "unsubscribe"))
        for name in ("subscription", "queue", "room"):
            assert told.get(name) == request.get(name)


async def test_a_page_before_a_message_that_nobody_can_read(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        sub = tw.stream("s", type=tidewire.text).subscribe()
        opening = asyncio.create_task(sub.open())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        await peer.ok(request, position=0)
        await opening
        for position in (1, 2):
            await peer.message(request, position, position)
        bad = {"subscription": request["subscription"], "stream": "s", "position": 3}
        time = "2026-11-26T08:05:07Z"
        await peer.send(type="message", **bad, time=time, payload_base64="/w==")
        pages = sub.pages(max=3, wait=10)
        assert [m.position for m in (await anext(pages)).messages] == [1, 2]
        with pytest.raises(tidewire.InvalidMessage):
            await anext(pages)


@pytest.mark.parametrize("pages_again", [False, True], ids=["messages", "pages"])
async def test_a_page_that_was_cancelled_loses_no_message(
    fake: FakeServer, pages_again: bool
) -> None:
    async with tidewire.connect(fake.url) as tw:
        sub = tw.stream("s").subscribe()
        opening = asyncio.create_task(sub.open())
        peer = await fake.peer()
        request = await peer.take("subscribe")
        await peer.ok(request, position=0)
        await opening
        first = asyncio.ensure_future(anext(sub.pages(max=3, wait=100)))
        await peer.message(request, 1, "one")
        while sub.position != 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        if pages_again:
            assert [m.position for m in (await anext(sub.pages())).messages] == [1]
        else:
            assert (await anext(sub)).position == 1


async def test_the_fields_of_the_library_are_not_those_of_a_chat(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        for name in ("type", "id", "room", "client", "sequence"):
            with pytest.raises(TypeError, match=name):
                await tw.room("r").join().chat("x", **{name: "y"})  # type: ignore[arg-type]
