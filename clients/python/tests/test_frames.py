"""Frames of the server, however the network cuts them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

import tidewire
from tidewire.frames import Cutter

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def text(message: dict[str, Any] | str, opcode: Opcode = Opcode.TEXT, fin: bool = True) -> bytes:
    """A frame."""
    data = message if isinstance(message, str) else json.dumps(message)
    return Frame(opcode, data.encode(), fin).serialize(mask=False)


def head(request: bytes) -> bytes:
    """The answer to a handshake."""
    key = next(
        line.split(b":")[1].strip()
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-key")
    )
    accept = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Protocol: tidewire.v1\r\nSec-WebSocket-Accept: "
        + base64.b64encode(accept)
        + b"\r\n\r\n"
    )


HELLO = text({"type": "hello", "limits": {}})
NOTICE = text({"type": "notice", "message": {"n": 7}})
LONG = text({"type": "later", "x": "x" * 70000})


class Raw:
    """A server that answers the handshake, and sends what it is told."""

    def __init__(self) -> None:
        self.sends: list[list[bytes]] = []
        self.url = ""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "localhost", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"ws://localhost:{port}/ws"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        pieces = self.sends.pop(0) if self.sends else [HELLO, NOTICE]
        first = head(request) if pieces and pieces[0] != b"no head" else b""
        for piece in [first + pieces[0]] if len(pieces) == 1 else [first, *pieces]:
            writer.write(b"" if piece == b"no head" else piece)
            await writer.drain()
            await asyncio.sleep(0.001)
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                """Nothing that comes matters."""
        writer.close()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()


@pytest.fixture
async def raw(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Raw]:
    """A server that sends bytes, and answers no goodbye."""
    monkeypatch.setattr("tidewire.connection.GOODBYE", 0.01)
    server = Raw()
    await server.start()
    yield server
    await server.stop()


async def noticed(raw: Raw) -> list[tidewire.State]:
    """Waits for the notice. Returns the states up to there."""
    seen: list[tidewire.State] = []
    notice: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    tw = tidewire.connect(raw.url, on_state=seen.append, on_notice=notice.set_result)
    call = asyncio.ensure_future(tw.stream("s").publish(1))
    assert await asyncio.wait_for(notice, 10) == {"n": 7}
    states = list(seen)
    call.cancel()
    await tw.close()
    return states


def fragments(frame: bytes) -> bytes:
    """The same message in three frames, with a ping in between."""
    whole = frame[2:].decode()
    return (
        text(whole[:5], fin=False)
        + text("", Opcode.PING)
        + text(whole[5:9], Opcode.CONT, fin=False)
        + text(whole[9:], Opcode.CONT)
    )


@pytest.mark.parametrize(
    "pieces",
    [
        [HELLO + NOTICE],
        [HELLO[:1], HELLO[1:] + NOTICE[:2], NOTICE[2:]],
        [bytes([b]) for b in HELLO + NOTICE],
        [HELLO + fragments(NOTICE)],
        [HELLO, text("x" * 120, Opcode.PING) + NOTICE],
        [HELLO, text({"type": "later", "x": "ü" * 100}) + LONG, NOTICE],
        [HELLO, text(" " + json.dumps({"type": "notice", "message": {"n": 7}}) + "\n")],
    ],
)
async def test_a_message_arrives(raw: Raw, pieces: list[bytes]) -> None:
    raw.sends.append(pieces)
    assert [state.name for state in await noticed(raw)] == ["connecting", "connected"]


@pytest.mark.parametrize(
    "bad",
    [
        text("no JSON"),
        text('{"type":"ok"} {}'),
        b"\x81\x02\xff\xff",
        b"\x81\x81aaaab",  # masked
        b"\x81\x7f" + (1 << 40).to_bytes(8, "big"),
        text("a", fin=False) + text("b"),  # a message within another one
        b"\xf1\x00",  # reserved bits
    ],
)
async def test_bytes_that_nobody_can_read(raw: Raw, bad: bytes) -> None:
    raw.sends += [[HELLO, bad], [HELLO, NOTICE]]
    seen = await noticed(raw)
    assert [state.name for state in seen].count("waiting") == 1


async def test_an_answer_that_is_no_handshake(raw: Raw) -> None:
    refused = b'HTTP/1.1 503 no\r\nContent-Length: 38\r\n\r\n{"error":{"message":"it is restarting"'
    raw.sends += [[b"no head", refused[:20], refused[20:] + b"}}"], [HELLO, NOTICE]]
    seen = await noticed(raw)
    assert any("503" in str(getattr(state, "error", "")) for state in seen)


def test_any_cut_gives_the_same_frames() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    sizes = [0, 1, 125, 126, 127, 65535, 65536, 70000]
    frames = [text("x" * chance.choice(sizes)) for _ in range(20)] + [text("p", Opcode.PING)]
    chance.shuffle(frames)
    stream = b"".join(frames)
    for _ in range(50):
        cutter, found, at = Cutter(1 << 20), [], 0
        while at < len(stream):
            size = chance.choice([1, 2, 7, 1000, 100_000])
            found += [bytes(frame) for frame, _ in cutter.cut(stream[at : at + size])]
            at += size
        assert found == frames, seed
        assert not cutter.rest()
