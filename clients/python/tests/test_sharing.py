"""Publishes that share a request, and the order of those that do not."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from conftest import Real
from fake import FakeServer, Peer

import tidewire
from tidewire.requests import Requests
from tidewire.sharing import MAX_HEADER_CHARACTERS, MAX_HEADERS, may_share

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
#: keys and headers that the server may refuse
DOUBTFUL: list[tuple[Any, Any]] = [
    ("a\0b", None),
    ("x" * 1025, None),
    ("ü" * 513, None),
    ("\ud800", None),
    (7, None),
    (None, {"a": "\0"}),
    (None, {"a\0": "b"}),
    (None, {"a": "\udfff"}),
    (None, {"a": 1}),
    (None, {"a": {"b": "c"}}),
    (None, {1: "a"}),
    (None, {"a": "x" * MAX_HEADER_CHARACTERS}),
    (None, {str(n): "x" for n in range(MAX_HEADERS + 1)}),
]
CERTAIN: list[tuple[Any, Any]] = [
    (None, None),
    (None, {}),
    ("", None),
    ("customer-3", TRACE),
    ("x" * 1024, None),
    ("ü" * 512, None),
    ("\U0001f600" * 256, {"a\n": '"\\\x01\x7f\u2028\ufeff\uffff'}),
    (None, {str(n): "\x01" * 510 for n in range(16)}),
]


async def payloads(peer: Peer, position: int) -> list[str]:
    """What the next publish has."""
    request = await peer.take("publish")
    await peer.ok(request, position=position)
    return [m["payload"] for m in request.get("messages", [request])]


@pytest.mark.parametrize(("key", "headers"), DOUBTFUL)
def test_what_goes_alone(key: Any, headers: Any) -> None:
    assert not may_share(key, headers)


@pytest.mark.parametrize(("key", "headers"), CERTAIN)
def test_what_may_share(key: Any, headers: Any) -> None:
    assert may_share(key, headers)


async def test_a_doubtful_message_goes_alone_in_its_turn(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw, asyncio.TaskGroup() as group:
        stream = tw.stream("s")
        for n in range(6):
            headers = {"bad": "\0"} if n == 2 else {"n": n} if n == 3 else TRACE
            group.create_task(stream.publish(n, headers=headers))
        peer = await fake.peer()
        seen = [await payloads(peer, n) for n in range(4)]
        assert seen == [["0", "1"], ["2"], ["3"], ["4", "5"]]


async def test_half_a_surrogate_pair_in_a_key_harms_no_other(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        keys = [None, "\ud800", None]
        calls = [asyncio.ensure_future(tw.stream("s").publish(1, key=key)) for key in keys]
        peer = await fake.peer()
        assert [await payloads(peer, n) for n in range(2)] == [["1"], ["1"]]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(r) for r in results] == [tidewire.Ack, UnicodeEncodeError, tidewire.Ack]


async def test_parts_of_a_batch_that_is_too_big_stay_in_place(fake: FakeServer) -> None:
    fake.limits["message_bytes"] = 1000
    async with tidewire.connect(fake.url) as tw:
        stream = tw.stream("s", type=tidewire.text)
        texts = [f"{n}" + '"' * 100 for n in range(20)]  # twice as long on the wire
        calls = [asyncio.ensure_future(stream.publish(text)) for text in texts]
        calls.append(asyncio.ensure_future(tw.stream("t", type=tidewire.text).publish("after")))
        peer = await fake.peer()
        seen: list[str] = []
        while "after" not in seen:
            seen += await payloads(peer, len(seen))
        assert seen == [*texts, "after"]
        assert [(await call).position for call in calls] == list(range(21))


async def test_parts_stay_in_place_over_a_reconnect(fake: FakeServer) -> None:
    fake.limits["message_bytes"] = 1000
    async with tidewire.connect(fake.url) as tw:
        stream = tw.stream("s", type=tidewire.text)
        texts = [f"{n}" + '"' * 100 for n in range(8)]
        calls = [asyncio.ensure_future(stream.publish(text)) for text in texts]
        calls.append(asyncio.ensure_future(tw.stream("t", type=tidewire.text).publish("after")))
        peer = await fake.peer()
        await peer.take("publish")
        peer.cut()
        peer = await fake.peer()
        seen: list[str] = []
        while "after" not in seen:
            seen += await payloads(peer, len(seen))
        assert seen == [*texts, "after"]
        await asyncio.gather(*calls)


async def test_a_batch_in_doubt_is_not_sent_in_parts(fake: FakeServer) -> None:
    async with tidewire.connect(fake.url) as tw:
        stream = tw.stream("s", type=tidewire.text)
        calls = [asyncio.ensure_future(stream.publish("x" * 600)) for _ in range(2)]
        peer = await fake.peer()
        await peer.take("publish")
        fake.limits["message_bytes"] = 1000
        peer.cut()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(r) for r in results] == [tidewire.OutcomeUnknown] * 2


# Against a real server: it refuses nothing that may share.


def _text(chance: random.Random, most: int) -> str:
    awkward = '\x01\x1f\x7f\x80"\\/\u2028\ufeff\uffff\ud7ff\ue000\U0010ffff'
    letters = [chr(chance.randrange(1, 0xD800)), *chance.choices(awkward, k=3)]
    return "".join(chance.choices(letters, k=chance.randrange(most)))


async def test_a_real_server_takes_all_of_them(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    def split(self: Requests, batch: Any) -> None:
        raise AssertionError("the server has refused what may share")

    monkeypatch.setattr(Requests, "_split", split)
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    async with tidewire.connect(real.url) as tw, asyncio.TaskGroup() as group:
        stream = tw.stream(real.create("streams"))
        messages = list(CERTAIN)
        while len(messages) < 500:
            headers = {_text(chance, 8): _text(chance, 40) for _ in range(chance.randrange(17))}
            messages.append((_text(chance, 300) or None, headers))
        for key, headers in messages:
            if may_share(key, headers):
                group.create_task(stream.publish(1, key=key, headers=headers), name=str(seed))
        for _ in range(1000):  # as many values as a request can have
            headers = {str(n): "x" for n in range(MAX_HEADERS)}
            group.create_task(stream.publish(1, headers=headers))


async def test_one_bad_message_keeps_the_order(real: Real) -> None:
    async with tidewire.connect(real.url) as tw:
        stream = tw.stream(real.create("streams"))
        headers = [None, TRACE, {"bad": "\0"}, None, {"n": 1}, None]
        calls = [
            asyncio.ensure_future(stream.publish(n, headers=each)) for n, each in enumerate(headers)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(r, "code", "") for r in results] == ["", "", "invalid", "", "", ""]
        async with stream.subscribe(after=0) as sub:
            assert [(await anext(sub)).value for _ in range(5)] == [0, 1, 3, 4, 5]
