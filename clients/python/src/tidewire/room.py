"""Rooms: chats, presence, and what was missed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from . import errors, options
from .answers import check_chat
from .attachment import Attached
from .connection import CLOSING, Connection
from .pending import Answer, Policy

#: how many events wait for the program
WAITING = 1000


@dataclass(slots=True)
class Chat:
    """What somebody has said."""

    text: str
    user: str | None
    room: str
    #: where it is stored; None in a room that is not stored
    position: int | None
    #: when the server took it; None in a room that is not stored
    time: datetime | None
    #: all fields that were sent
    fields: Mapping[str, Any] = field(repr=False)


@dataclass(slots=True)
class Presence:
    """Who is in the room, and who has come and gone since the last time."""

    members: frozenset[str]
    joined: frozenset[str]
    left: frozenset[str]


@dataclass(slots=True)
class Gap:
    """Chats are missing: `missed` is how many, None if that is not known."""

    missed: int | None


RoomEvent = Chat | Presence | Gap | errors.HistoryLost


class Room:
    """A room of the server. `Client.room` makes one."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection

    def join(
        self,
        *,
        user: str | None = None,
        history: int | None = None,
        after: int | None = None,
        presence: bool = False,
    ) -> Membership:
        """A membership: use it with `async with`, and iterate over its events.

        In a stored room the last `history` chats come first, or those after a position.
        """
        options.optional_count("history", history)
        options.optional_count("after", after)
        return Membership(self._connection, self.name, user, history, after, presence)


class Membership(Attached[dict[str, Any]]):
    """Being in a room, on whichever connection the client has."""

    def __init__(
        self,
        connection: Connection,
        room: str,
        user: str | None,
        history: int | None,
        after: int | None,
        presence: bool,
    ) -> None:
        super().__init__(connection, connection.rooms)
        self.room = room
        self.user = user
        #: who is in the room, with `presence`
        self.members: frozenset[str] = frozenset()
        #: whether the chats of the room are kept
        self.stored = False
        self._history = history
        self._after = after
        self._presence = presence
        self._position: int | None = after
        self._listed = False
        self._missed = 0
        self._leaving = False

    # The life of a membership.

    async def _exit(self, error: BaseException | None) -> None:
        await self.leave()

    async def open(self, *, timeout: float | None = None) -> None:
        """Joins. `async with` does this."""
        self._register(self.room, "already_joined")
        body = self._request()
        if self._history is not None:
            body["history"] = self._history
        try:
            answer = await self._connection.requests.perform(body, timeout=timeout)
        except BaseException as error:
            self._give_up(error, {"type": "leave", "room": self.room})
            raise
        self._entered(answer)
        if self.stored and self._position is None:
            self._position = answer["position"]

    def _request(self) -> dict[str, Any]:
        body: dict[str, Any] = {"type": "join", "room": self.room}
        if self.user is not None:
            body["user"] = self.user
        if self._presence:
            body["presence"] = True
        if self._position is not None:
            body["after"] = self._position
        return body

    def _entered(self, answer: Answer) -> None:
        self._started = True
        self._attempt = 0
        self.stored = "position" in answer

    async def leave(self) -> None:
        """Leaves the room. `async with` does this."""
        known = self._registered
        self._feed.end(discard=True)
        try:
            if known and self._connection.connected:
                body = {"type": "leave", "room": self.room}
                await self._connection.requests.perform(body, policy=Policy.BOUND, timeout=CLOSING)
        except errors.Error:
            pass  # the connection has ended, and the membership with it
        finally:
            self._forget()

    @property
    def position(self) -> int | None:
        """The last position that the program was given, in a stored room."""
        return self._position if self.stored else None

    # What the connection calls.

    def _hold(self) -> None:
        """The server takes a chat only after it has answered the join."""
        if self._started and self._registered:
            self._connection.requests.hold(self.room)

    def attach(self) -> None:
        """Joins again. Chats wait meanwhile."""
        self._hold()
        super().attach()

    def _forget(self) -> None:
        if self._registered:
            self._connection.requests.release(self.room)
        super()._forget()

    def _attached(self, answer: Answer | Exception) -> None:
        if not isinstance(answer, Exception):
            self._entered(answer)
            self._connection.requests.release(self.room)
            if not self.stored:
                self._feed.put({"type": "gap", "missed": None})
        elif isinstance(answer, errors.Error) and self._connection.connected:
            self.ended(answer)

    def detach(self) -> None:
        """Discards what comes again."""
        self._cancel_timer()
        self._hold()
        self._listed = self._leaving = False
        if self.stored:
            self._feed.items.clear()
            self._missed = 0

    def receive(self, message: dict[str, Any]) -> None:
        """Takes a message of the room."""
        kind = message["type"]
        if kind == "chat":
            check_chat(message)
        if kind == "presence":
            message = self._present(message)
            if not message:
                return
        elif self._leaving:
            return
        elif self._missed or len(self._feed.items) >= WAITING:
            self._overflow(message)
            return
        self._feed.put(message)

    def _overflow(self, message: dict[str, Any]) -> None:
        """The program is too slow: it gets a gap, or in a stored room the rest again."""
        self._missed += message.get("missed", 1) if message["type"] == "gap" else 1

    def _present(self, message: dict[str, Any]) -> dict[str, Any]:
        before = self.members
        if "members" in message:
            now = frozenset(message["members"])
        else:
            now = (before | set(message.get("joined", ()))) - set(message.get("left", ()))
        first, self._listed = not self._listed, True
        self.members = now
        if now == before and not (first and not before):
            return {}
        items = self._feed.items
        if len(items) >= WAITING and items[-1]["type"] == "presence":
            waiting: Presence = items.pop()["is"]  # the program is too slow: one for both
            before = (waiting.members - waiting.joined) | waiting.left
        return {"type": "presence", "is": Presence(now, now - before, before - now)}

    def ended(self, error: errors.Error) -> None:
        """The server has ended it, or refuses to take us back."""
        if isinstance(error, errors.HistoryLost):
            up_to = error.details.get("up_to", self._position)
            lost = {"type": "history_lost", "last": error.last, "up_to": up_to}
            self._feed.put(lost)
            self._position = error.last
            self.attach()
        elif isinstance(error, errors.TooOld):
            self._feed.put({"type": "gap", "missed": None})
            self._position = error.oldest - 1
            self.attach()
        else:
            super().ended(error)

    # What the program calls.

    async def chat(self, text: str, *, timeout: float | None = None, **fields: Any) -> int | None:
        """Says something. Returns its position in a stored room, after the commit.

        In a room that is not stored it is sent once. Other fields go to the members as they are.
        """
        reserved = {"type", "id", "room", "client", "sequence"} & fields.keys()
        if reserved:
            raise TypeError(f"the library has these fields of a chat itself: {sorted(reserved)}")
        body: dict[str, Any] = {"type": "chat", "room": self.room}
        if self.user is not None:
            body["user"] = self.user
        body |= {"text": text, **fields}
        answer = await self._connection.requests.perform(
            body,
            policy=Policy.REPEAT if self.stored else Policy.ONCE,
            numbered=self.stored,
            size=len(text.encode()) + 64,
            timeout=timeout,
        )
        return answer.get("position")

    def __aiter__(self) -> AsyncIterator[RoomEvent]:
        return self

    async def __anext__(self) -> RoomEvent:
        feed = self._feed
        self._check()
        if not feed.items:
            if self._missed:
                event = self._catch_up()
                if event is not None:
                    return event
            if not await feed.wait():
                raise StopAsyncIteration
        return self._event(feed.items.popleft())

    def _catch_up(self) -> Gap | None:
        """After an overflow: joins again where it is stored, or tells how much is missing."""
        missed, self._missed = self._missed, 0
        if not self.stored:
            return Gap(missed)
        if self._connection.connected:
            self._leaving = True  # what comes before the answer comes again with the next join
            self._connection.requests.ask({"type": "leave", "room": self.room}, self._left)
            self._listed = False
            self.attach()
        return None

    def _left(self, answer: Answer | Exception) -> None:
        self._leaving = False

    def _event(self, raw: dict[str, Any]) -> RoomEvent:
        kind = raw["type"]
        if kind == "chat":
            position = raw.get("position") if self.stored else None
            if position is not None:
                self._position = position
            time = raw.get("time") if position is not None else None
            known = None if time is None else datetime.fromisoformat(time)
            return Chat(raw["text"], raw.get("user"), self.room, position, known, raw)
        if kind == "presence":
            presence: Presence = raw["is"]
            return presence
        if kind == "gap":
            return Gap(raw.get("missed"))
        return errors.HistoryLost("a failover has lost chats: discard them", details=raw)
