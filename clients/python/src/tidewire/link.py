"""One WebSocket: the sans-I/O protocol of `websockets`, on a transport of asyncio."""

from __future__ import annotations

import asyncio
import json
import ssl as ssl_module
from collections.abc import Callable, Mapping
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from .frames import Cutter
from .wire import seconds_in, seconds_in_text

SUBPROTOCOL = "tidewire.v1"
#: how long the other side may take to end a connection after the closing handshake
CLOSING = 5.0
#: the write buffer of the socket: above it nothing more is handed to the socket
HIGH_WATER = 256 << 10
#: answers to pings that a server may leave unread before it counts as broken, in bytes
UNREAD_PONGS = 64 << 10
_MAX_FRAME = 64 << 20
_decoder = json.JSONDecoder()

Receive = Callable[[dict[str, Any]], None]


class BrokenServer(ConnectionError):
    """The server does what the protocol forbids: its connection is dropped."""


class HandshakeFailed(Exception):
    """The server has answered the handshake with something else than 101."""

    def __init__(self, message: str, status: int, retry_after: float | None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Link(asyncio.Protocol):
    """Calls `receive` for each message of the server, in their order."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        receive: Receive,
        drained: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.last_received = loop.time()
        #: what the server has sent and should not
        self.failure: Exception | None = None
        self._loop = loop
        #: whether the socket takes more; `drained` is called when it does again
        self.writable = True
        self._drained = drained
        self._unread = 0
        self._receive = receive
        self._headers = headers
        self._closing: asyncio.TimerHandle | None = None
        self._cutter = Cutter(_MAX_FRAME)
        self._shaken = False
        self._fragments: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._uri = parse_uri(url)
        self._protocol = ClientProtocol(
            self._uri, subprotocols=[Subprotocol(SUBPROTOCOL)], max_size=_MAX_FRAME
        )

    async def dial(self, ssl: ssl_module.SSLContext | None) -> None:
        """Connects, and waits for the answer to the handshake."""
        uri = self._uri
        if uri.secure and ssl is None:
            ssl = ssl_module.create_default_context()
        context = ssl if uri.secure else None
        await self._loop.create_connection(lambda: self, uri.host, uri.port, ssl=context)
        await self.opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER)
        request = self._protocol.connect()
        for name, value in self._headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        self._flush()

    def pause_writing(self) -> None:
        self.writable = False
        self._unread = 0

    def resume_writing(self) -> None:
        self.writable = True
        self._drained()

    def data_received(self, data: bytes) -> None:
        self.last_received = self._loop.time()
        try:
            if self._shaken:
                self._frames(data)
            else:
                self._handshake(data)
        except BrokenServer as error:
            self.fail(error)
            return
        except Exception as error:
            failure = BrokenServer(f"the server has sent what nobody can read: {error!r}")
            failure.__cause__ = error
            self.fail(failure)
            return
        if not self.writable and self._unread > UNREAD_PONGS:
            self.fail(BrokenServer("the server sends pings, and reads no answer"))
            return
        self._flush()

    def _handshake(self, data: bytes) -> None:
        head = self._cutter.head(data)
        if head is None:
            return
        self._through_protocol(head)
        if self._protocol.state is State.CONNECTING:  # no 101: what follows is a text for people
            self._through_protocol(self._cutter.rest())
        else:
            self._shaken = True
            self._frames(b"")

    def _frames(self, data: bytes) -> None:
        """Takes whole texts. All else, which is rare, is for the protocol."""
        protocol = self._protocol
        for frame, text in self._cutter.cut(data):
            if text and not self._fragments and protocol.close_rcvd is None:
                self._receive(_decode(str(frame[text:], "utf-8")))
            else:
                self._through_protocol(frame)

    def _through_protocol(self, data: bytes | bytearray) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if type(event) is Frame:
                self._take(event)
            elif isinstance(event, Response):
                self._shake(event)
        if self._shaken and protocol.parser_exc is not None:
            raise protocol.parser_exc

    def _shake(self, response: Response) -> None:
        if self.opened.done():
            return
        error = self._protocol.handshake_exc
        if error is None:
            self.opened.set_result(None)
        elif isinstance(error, InvalidStatus):
            self.opened.set_exception(_refused(response))
        else:
            self.opened.set_exception(error)

    def _take(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode is Opcode.TEXT and frame.fin:
            self._receive(_decode(str(frame.data, "utf-8")))
        elif opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                whole = b"".join(self._fragments)
                self._fragments.clear()
                self._receive(_decode(str(whole, "utf-8")))

    def send(self, messages: list[bytes]) -> None:
        """Sends messages, in one write."""
        if self._protocol.state is not State.OPEN:
            return
        for message in messages:
            self._protocol.send_text(message)
        self._flush()

    def _flush(self) -> None:
        chunks = self._protocol.data_to_send()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        data = [chunk for chunk in chunks if chunk]
        if data:
            whole = data[0] if len(data) == 1 else b"".join(data)
            if not self.writable:
                self._unread += len(whole)
            transport.write(whole)
        if self._closing is None and self._protocol.close_expected():
            self._closing = self._loop.call_later(CLOSING, self.drop)

    def eof_received(self) -> None:
        if not self._shaken:
            self._through_protocol(self._cutter.rest())
        self._protocol.receive_eof()
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._closing is not None:
            self._closing.cancel()
        if not self.opened.done():
            self.opened.set_exception(error or ConnectionError("the connection has ended"))
        if not self.closed.done():
            self.closed.set_result(None)

    @property
    def close_code(self) -> int:
        """The code with which the server has closed; 1006 if it has not."""
        received = self._protocol.close_rcvd
        return 1006 if received is None else int(received.code)

    @property
    def close_reason(self) -> str:
        """The reason that the server has given."""
        received = self._protocol.close_rcvd
        return "" if received is None else received.reason

    def close(self) -> None:
        """Begins the closing handshake."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
            self._flush()
        else:
            self.drop()

    def fail(self, failure: Exception) -> None:
        """Ends the connection at once, for this reason."""
        if self.failure is None:
            self.failure = failure
        self.drop()

    def drop(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()


def _decode(text: str) -> Any:
    try:
        value, end = _decoder.raw_decode(text)
    except ValueError:
        return _decoder.decode(text)  # with a blank before it
    return value if end == len(text) else _decoder.decode(text)


def _refused(response: Response) -> HandshakeFailed:
    status = response.status_code
    body = bytes(response.body or b"").decode(errors="replace").strip()
    retry_after = seconds_in_text(response.headers.get("Retry-After"), 1000)
    try:
        problem = json.loads(body)["error"]
        body = problem["message"]
        told = seconds_in(problem.get("retry_after_ms"))
        retry_after = retry_after if told is None else told
    except (ValueError, KeyError, TypeError):
        pass
    return HandshakeFailed(f"handshake: {status} {body}", status, retry_after)
