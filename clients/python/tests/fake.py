"""A server that plays a script: the test takes each message, and answers it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from tidewire.client import Client

LIMITS = {"message_bytes": 1 << 20}


class Peer:
    """One connection of the client."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.authorization = socket.request.headers.get("Authorization") if socket.request else None
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def take(self, kind: str | None = None) -> dict[str, Any]:
        """The next message; with a kind, it has to be of that one."""
        message = await self.messages.get()
        while message["type"] == "begin" and kind != "begin":  # most tests do not look at these
            message = await self.messages.get()
        assert kind is None or message["type"] == kind, message
        return message

    async def send(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def ok(self, request: dict[str, Any], **fields: Any) -> None:
        await self.send(type="ok", id=request["id"], **fields)

    async def error(self, request: dict[str, Any], code: str, **fields: Any) -> None:
        fields = {"message": code, "retryable": False, **fields}
        await self.send(type="error", id=request["id"], code=code, **fields)

    async def message(self, request: dict[str, Any], position: int, value: Any) -> None:
        """A message of a subscription."""
        await self.send(
            type="message",
            stream=request["stream"],
            subscription=request["subscription"],
            position=position,
            time="2026-11-26T08:05:07Z",
            payload=json.dumps(value),
        )

    async def delivery(self, queue: str, delivery: str, value: Any = None) -> None:
        """A delivery of a queue."""
        await self.send(
            type="delivery",
            queue=queue,
            delivery=delivery,
            attempt=1,
            position=int(delivery),
            time="2026-11-26T08:05:07Z",
            payload=json.dumps(value),
        )

    def stop_reading(self) -> None:
        """Nothing that the client sends is read from here on."""
        self.socket.transport.pause_reading()

    def cut(self) -> None:
        """Ends the connection without a handshake."""
        self.socket.transport.abort()

    async def close(self, code: int, reason: str = "") -> None:
        await self.socket.close(code, reason)


class FakeServer:
    """Listens, and hands out each connection to the test."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.limits = dict(LIMITS)
        self.greets = True
        self._server: Server | None = None

    async def start(self) -> None:
        self._server = await serve(
            self._serve, "localhost", 0, subprotocols=[Subprotocol("tidewire.v1")]
        )

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://localhost:{next(iter(self._server.sockets)).getsockname()[1]}/ws"

    async def _serve(self, socket: ServerConnection) -> None:
        peer = Peer(socket)
        if self.greets:
            await peer.send(type="hello", protocol="tidewire.v1", limits=self.limits)
        self.peers.put_nowait(peer)
        try:
            async for text in socket:
                peer.messages.put_nowait(json.loads(text))
        except Exception:
            return  # the test has cut the connection

    async def peer(self) -> Peer:
        """The next connection."""
        return await self.peers.get()

    async def connected(self, client: Client) -> Peer:
        """The connection of a client that has published once: the time of its next request is
        not one of connecting."""
        first = asyncio.create_task(client.stream("first").publish(0, timeout=30))
        peer = await self.peer()
        await peer.ok(await peer.take("publish"), position=1)
        await first
        return peer

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
