"""The connection of a client: it is made again until the program closes the client."""

from __future__ import annotations

import asyncio
import random
import re
import ssl as ssl_module
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from . import errors, state
from .backoff import pause
from .link import HandshakeFailed, Link
from .pending import Answer
from .requests import Requests
from .token import Tokens
from .wire import seconds_in_text

ATTEMPT = 10.0
STEADY = 10.0
QUIET = 35.0
PONG = 10.0
CLOSING = 5.0
GOODBYE = 1.0


class Attachment(Protocol):
    """What lives as long as the program wants it: a subscription, consumer or membership."""

    def attach(self) -> None:
        """There is a connection: ask for it again."""

    def detach(self) -> None:
        """The connection has ended."""

    def receive(self, message: dict[str, Any]) -> None:
        """A message of the server."""

    def ended(self, error: errors.Error) -> None:
        """The server has ended it."""

    def shut(self, error: Exception | None) -> None:
        """The client has ended."""


class Connection:
    """Connects, notices when the connection is dead, and connects again."""

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        *,
        headers: Mapping[str, str],
        ssl: ssl_module.SSLContext | None,
        on_state: Callable[[state.State], None] | None,
        on_failure: Callable[[BaseException], None],
        **bounds: Any,
    ) -> None:
        self.url = url
        self.state: state.State | None = None
        self.hello: dict[str, Any] = {}
        self.requests = Requests(self.start, **bounds)
        self.requests.renew = self._renew
        #: attachments by their kind and name
        self.subscriptions: dict[str, Attachment] = {}
        self.queues: dict[str, Attachment] = {}
        self.rooms: dict[str, Attachment] = {}
        self.on_notice: Callable[[dict[str, Any]], None] | None = None
        self._tokens = tokens
        self._headers = headers
        self._ssl = ssl
        self._on_state = on_state
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._link: Link | None = None
        self._greeted: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._names = 0
        self._attempts = 0
        self._extra = 0.0

    @property
    def connected(self) -> bool:
        """Whether requests go out at once."""
        return isinstance(self.state, state.Connected)

    def name(self) -> str:
        """A name that no other subscription has."""
        self._names += 1
        return str(self._names)

    def call(self, listener: Callable[[Any], None], value: Any) -> None:
        """Calls a function of the program, not from within the loop that reads."""
        asyncio.get_running_loop().call_soon(self._called, listener, value)

    def _called(self, listener: Callable[[Any], None], value: Any) -> None:
        try:
            listener(value)
        except Exception as error:
            self._on_failure(error)

    def attachments(self) -> list[Attachment]:
        """All of them, in the order in which they were made, by kind."""
        return [*self.subscriptions.values(), *self.queues.values(), *self.rooms.values()]

    def start(self) -> None:
        """Begins to connect, unless it has."""
        if self._task is None and self.state is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="tidewire")
            self._task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._finish(errors.Closed(f"the connection has failed: {error!r}"))
                self._on_failure(error)

    def _change(self, new: state.State) -> None:
        self.state = new
        if self._on_state is not None:
            self.call(self._on_state, new)

    async def _run(self) -> None:
        failure: Exception
        while True:
            self._change(state.Connecting())
            started = time.monotonic()
            wait: float | None
            try:
                async with asyncio.timeout(ATTEMPT):
                    link = await self._connect()
            except errors.SignedOut as error:
                self._finish(error)
                return
            except Exception as error:
                failure, wait = error, self._after_failure(error)
            else:
                started = time.monotonic()
                try:
                    await link.closed
                finally:
                    self._disconnected(link)
                if isinstance(self.state, state.Closed):
                    return
                if link.close_code == 4403:
                    self._finish(errors.Closed(f"the token was revoked: {link.close_reason}"))
                    return
                if time.monotonic() - started >= STEADY:
                    self._attempts = 0
                failure = link.failure or ConnectionError(
                    f"closed with {link.close_code} {link.close_reason}"
                )
                wait = self._after_close(link)
            if wait is None:
                wait = pause(self._attempts) + self._extra
                self._attempts += 1
            self._extra = 0.0
            self.requests.unreachable(failure)
            self._change(state.Waiting(wait, failure))
            await asyncio.sleep(wait)

    async def _connect(self) -> Link:
        token = await self._tokens.get()
        headers = dict(self._headers)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        loop = asyncio.get_running_loop()
        link = self._link = Link(self.url, headers, self._receive, self.requests.drained)
        greeted = self._greeted = loop.create_future()
        try:
            await link.dial(self._ssl)
            link.closed.add_done_callback(self._ungreeted)
            await greeted
        except BaseException:
            if self.connected:
                self._disconnected(link)
            self._link = None
            link.drop()
            raise
        return link

    def _ungreeted(self, closed: asyncio.Future[None]) -> None:
        greeted = self._greeted
        if greeted is not None and not greeted.done() and self._link is not None:
            link = self._link
            greeted.set_exception(
                link.failure
                or ConnectionError(f"closed with {link.close_code} {link.close_reason}")
            )

    def _after_failure(self, error: Exception) -> float | None:
        if isinstance(error, HandshakeFailed):
            if error.status == 401:
                self._tokens.refused = True
            if error.status == 429:
                self._extra = 5.0 if error.retry_after is None else error.retry_after
        return None

    def _after_close(self, link: Link) -> float | None:
        code = link.close_code
        if code == 1001:
            told = re.search(r"retry_after_ms=(\S+)$", link.close_reason)
            wait = seconds_in_text(told[1]) if told else None
            return random.uniform(0, 2) if wait is None else wait
        if code == 4401:
            self._tokens.refused = True
        if code == 4429:
            self._extra = 5.0
        return None

    # Messages.

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "ok":
            self.requests.answered(message)
        elif kind == "error":
            self._failed(message)
        elif "subscription" in message:
            target = self.subscriptions.get(message["subscription"])
            if target is not None:
                target.receive(message)
        elif kind == "delivery":
            target = self.queues.get(message["queue"])
            if target is not None:
                target.receive(message)
        elif kind in ("chat", "gap", "presence", "history_lost"):
            target = self.rooms.get(message.get("room", "public"))
            if target is not None:
                target.receive(message)
        elif kind == "hello":
            self._greet(message)
        elif kind == "expiring":
            self._renew()
        elif kind == "notice" and self.on_notice is not None:
            self.call(self.on_notice, message["message"])

    def _failed(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self.requests.refused(message)
            return
        target: Attachment | None = None
        if "subscription" in message:
            target = self.subscriptions.get(message["subscription"])
        elif "queue" in message:
            target = self.queues.get(message["queue"])
        elif "room" in message:
            target = self.rooms.get(message["room"])
        if target is not None:
            target.ended(errors.from_wire(message))

    def _greet(self, hello: dict[str, Any]) -> None:
        """The first message of the server. What waits goes out at once after it."""
        link = self._link
        if link is None or self._greeted is None or self._greeted.done():
            return
        self.hello = hello
        self._greeted.set_result(None)
        self._change(state.Connected())
        self._watch_at(link, QUIET)
        limit = hello.get("limits", {}).get("message_bytes")
        self.requests.connected(link, limit if type(limit) is int else None, self._attach)

    def _attach(self) -> None:
        for attachment in self.attachments():
            attachment.attach()

    def _disconnected(self, link: Link) -> None:
        self._link = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        link.drop()
        if not isinstance(self.state, state.Closed):
            self.state = state.Connecting()  # nothing goes out from here on
        self.requests.disconnected()
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.cancel()  # the next attempt asks for a token itself
        for attachment in self.attachments():
            attachment.detach()

    # Keep-alive.

    def _watch_at(self, link: Link, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(seconds, self._quiet, link)

    def _quiet(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        silence = loop.time() - link.last_received
        if silence < QUIET:
            self._watch_at(link, QUIET - silence)
            return
        self.requests.tell({"type": "ping"})
        self._watch = loop.call_later(PONG, self._dead, link, link.last_received)

    def _dead(self, link: Link, before: float) -> None:
        if link.last_received == before:
            link.drop()
        else:
            self._watch_at(link, QUIET)

    # Tokens.

    def _renew(self) -> bool:
        """Gets another token for this connection, beside everything else."""
        if not self._tokens.renewable:
            return False
        if self._renewal is None or self._renewal.done():
            loop = asyncio.get_running_loop()
            self._renewal = loop.create_task(self._authenticate(), name="tidewire token")
            self._renewal.add_done_callback(self._renewed)
        return True

    async def _authenticate(self) -> None:
        """Tries until it has a token. Without one the server closes, which is another attempt."""
        attempt = 0
        while self.connected:
            try:
                token = await self._tokens.get()
            except errors.SignedOut:
                raise
            except Exception:
                await asyncio.sleep(pause(attempt))
                attempt += 1
                continue
            self.requests.ask({"type": "auth", "token": token}, self._authenticated)
            return

    def _authenticated(self, answer: Answer | Exception) -> None:
        if isinstance(answer, errors.Error) and not isinstance(answer, errors.LeaseLost):
            self._tokens.refused = True

    def _renewed(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, errors.SignedOut):
            self._abandon()
            self._finish(error)
        elif error is not None:
            self._on_failure(error)

    # The end.

    def _abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._link is not None:
            self._link.drop()

    def _finish(self, error: errors.Error | None) -> None:
        """Ends everything that waits."""
        if isinstance(self.state, state.Closed):
            return
        for attachment in self.attachments():
            attachment.shut(error)
        self.requests.close(error or errors.Closed("the client is closed"))
        self._change(state.Closed(error))

    async def close(self) -> None:
        """Waits for answers, at most 5 s, and ends."""
        if isinstance(self.state, state.Closed):
            return
        self.requests.shut(errors.Closed("the client is closed"))
        if self._task is not None:
            await self.requests.answered_all(CLOSING)
        link = self._link
        self._finish(None)
        if link is not None:
            link.close()
            await asyncio.wait([link.closed], timeout=GOODBYE)
        for task in (self._task, self._renewal):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        running = [task for task in (self._task, self._renewal) if task is not None]
        if running:
            await asyncio.wait(running)
